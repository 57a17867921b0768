"""Escaping of text for terminals. Keys and payloads are untrusted: they must not control the terminal."""

import re

# Invisible characters that reorder the text around them.
_BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_UNSAFE = re.compile(f"[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff{_BIDI}]")
# JSON does not escape these, and a terminal interprets them.
_UNSAFE_IN_JSON = re.compile(f"[\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff{_BIDI}]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\x1b": "\\e"}


def shown(text: str) -> str:
    """The text on one line, with control characters escaped."""
    return _UNSAFE.sub(_escape, text)


def safe_json(text: str) -> str:
    """The same JSON value, with characters that a terminal interprets escaped."""
    return _UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def shortened(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def width_of(text: str) -> int:
    """Width in columns of a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    if char in _SHORT:
        return _SHORT[char]
    return f"\\x{ord(char):02x}" if ord(char) < 0x100 else f"\\u{ord(char):04x}"
