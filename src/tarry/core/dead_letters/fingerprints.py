"""Fingerprints of dead letters: a short id shared by errors that differ only in details such as numbers and ids."""

import hashlib
import re

READ = 1_000
"""Number of characters of an error's headline that count: a line has no maximum length."""
LENGTH = 12
_SHOWN = 300
_TRACEBACK = "Traceback (most recent call last):"
_NAMES_AN_ERROR = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?::|$)")
"""The last line of a traceback that is not indented; the message of an exception may have several lines."""

# In this order: a UUID contains numbers, an address contains hexadecimal digits, and quotes may contain any of them.
_PARTICULARS = (
    (re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"), "<uuid>"),
    (re.compile(r'"[^"]*"|`[^`]*`|(?<!\w)\'[^\']*\'(?!\w)|«[^»]*»|“[^”]*”'), "<text>"),
    (re.compile(r"\b0[xX][0-9a-fA-F]+\b|\b(?=[0-9a-fA-F]*[0-9])(?=[0-9a-fA-F]*[a-fA-F])[0-9a-fA-F]{8,}\b"), "<hex>"),
    (re.compile(r"[-+]?\d+(?:[.,:]\d+)*"), "<n>"),
    (re.compile(r"\s+"), " "),
)


def headline(error: str | None) -> str:
    """The line that names an error: the first non-empty one, but the last one of a Python traceback; empty if none."""
    lines = (line.strip() for line in (error or "")[:READ].splitlines())
    first = next((line for line in lines if line), "")
    if not (error or "").startswith(_TRACEBACK):
        return first
    lines = (line for line in reversed((error or "")[-READ:].splitlines()) if line.strip())
    return next((line for line in lines if _NAMES_AN_ERROR.match(line)), first).strip()


def pattern(error: str | None) -> str:
    """The headline, with placeholders for numbers, UUIDs, addresses and quotations; empty if none."""
    text = headline(error)
    for particular, name in _PARTICULARS:
        text = particular.sub(name, text)
    return text.strip()[:_SHOWN].rstrip()


def fingerprint(reason: str, error: str | None) -> str:
    """A hash of reason and pattern. It is stored: a change of the algorithm would regroup old dead letters."""
    return hashlib.sha256(f"{reason}\n{pattern(error)}".encode(errors="replace")).hexdigest()[:LENGTH]
