"""Removal of passwords from texts."""

import re

# Up to the next white space: a password may contain any other character. After an unclosed quote, all is hidden.
# Possessive (`*+`): no backtracking, so the cost is linear.
_PASSWORD = re.compile(
    r"""\b((?:ssl)?password\s*+=\s*+)(?:'(?:[^'\\]|\\.)*+(?:'|\\?\Z)|(?:[^\s\\]|\\.)++)""", re.IGNORECASE | re.DOTALL
)
_WORD = re.compile(r"\S++")


def without_secrets(text: str) -> str:
    """Replace passwords of connection strings, which error texts may quote."""
    return _WORD.sub(_without_userinfo, _PASSWORD.sub(r"\1***", text))


def _without_userinfo(match: re.Match[str]) -> str:
    """A URL without its password, which ends at the last `@`: it may contain `@`, `/` and `:`."""
    word = match[0]
    start, end = word.find("://"), word.rfind("@")
    colon = -1 if start < 0 else word.find(":", start + 3, end + 1)
    return word if colon < 0 else f"{word[:colon]}:***{word[end:]}"
