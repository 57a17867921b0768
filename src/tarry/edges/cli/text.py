"""Text from messages on its way to a terminal. Keys and payloads are strangers' data: they may not move the cursor."""

from __future__ import annotations

import re

# Unseen, but able to turn the text around it: the order of a line is not for a key to change.
_BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_UNSAFE = re.compile(f"[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff{_BIDI}]")
# What JSON leaves as it is, and a terminal does not.
_UNSAFE_IN_JSON = re.compile(f"[\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff{_BIDI}]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\x1b": "\\e"}
# To the next white space: a password may hold any other character. A quote that is never closed hides all the rest.
# Possessive (`*+`), so that no text makes these patterns step back: the cost is linear.
_PASSWORD = re.compile(
    r"""\b((?:ssl)?password\s*+=\s*+)(?:'(?:[^'\\]|\\.)*+(?:'|\\?\Z)|(?:[^\s\\]|\\.)++)""", re.IGNORECASE | re.DOTALL
)
_WORD = re.compile(r"\S++")


def shown(text: str) -> str:
    """The text on one line, with what a terminal would act on written as an escape."""
    return _UNSAFE.sub(_escape, text)


def safe_json(text: str) -> str:
    """JSON that stays the same JSON, and is harmless on a terminal too."""
    return _UNSAFE_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def shortened(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def without_secrets(text: str) -> str:
    """Error texts may quote a connection string; its password stays out of terminals and logs."""
    return _WORD.sub(_without_userinfo, _PASSWORD.sub(r"\1***", text))


def _without_userinfo(found: re.Match[str]) -> str:
    """An address without its password, which ends at the last `@`: it may hold `@`, `/` and `:` itself."""
    word = found[0]
    start, end = word.find("://"), word.rfind("@")
    colon = -1 if start < 0 else word.find(":", start + 3, end + 1)
    return word if colon < 0 else f"{word[:colon]}:***{word[end:]}"


def width_of(text: str) -> int:
    """Columns that a text takes in a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def plural(n: int, noun: str, nouns: str | None = None) -> str:
    return f"{n:,} {noun if n == 1 else nouns or noun + 's'}"


def _escape(found: re.Match[str]) -> str:
    char = found[0]
    if char in _SHORT:
        return _SHORT[char]
    return f"\\x{ord(char):02x}" if ord(char) < 0x100 else f"\\u{ord(char):04x}"
