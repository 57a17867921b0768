"""Payloads for display: indented without changing a token, and with the values hidden that the rules name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

HIDDEN = "«hidden»"
SHOWN_BYTES = 64 * 1024
_DEEPEST = 20
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_KEYS = (
    "password",
    "passwd",
    "secret",
    "token",
    "api_key",
    "apikey",
    "authorization",
    "cookie",
    "credit_card",
    "iban",
    "cvv",
)


class ShownPayload(NamedTuple):
    text: str
    is_json: bool
    hidden: int
    """Values that a rule hides."""
    cut: bool = False
    """Only the beginning is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Redaction:
    """Values are hidden under these keys, whole, whatever they contain; and texts where a pattern matches."""

    keys: tuple[str, ...] = _KEYS
    """Compared without case, `-` and `_`; a longer key that ends with one of these matches, too."""
    patterns: tuple[str, ...] = ()
    """Regular expressions; what they match is replaced."""

    def hides(self, key: str) -> bool:
        plain = _plain(key)
        return any(plain.endswith(_plain(name)) for name in self.keys)

    def text(self, text: str) -> str:
        """A text without what a pattern matches: error messages, keys, headers."""
        for pattern in self.patterns:
            text = re.sub(pattern, HIDDEN, text)
        return text

    def value(self, value: Any) -> Any:
        """The same for decoded JSON."""
        if isinstance(value, dict):
            items = cast("dict[str, Any]", value).items()
            return {key: HIDDEN if self.hides(key) else self.value(item) for key, item in items}
        if isinstance(value, list):
            return [self.value(item) for item in cast("list[Any]", value)]
        return self.text(value) if isinstance(value, str) else value

    def payload(self, payload: bytes, content_type: str | None, most: int = SHOWN_BYTES) -> ShownPayload:
        """JSON token by token, so that numbers stay as they were sent; other text as it is; else a description."""
        cut = len(payload) > most
        try:
            text = payload[:most].decode(errors="ignore" if cut else "strict")
        except UnicodeDecodeError:
            return ShownPayload(f"{len(payload):,} bytes that are not text", is_json=False, hidden=0)
        if content_type is not None and not content_type.endswith("json"):
            shown = self.text(text)
            return ShownPayload(shown, is_json=False, hidden=shown.count(HIDDEN) - text.count(HIDDEN), cut=cut)
        return self._json(text, cut=cut)

    def _json(self, text: str, *, cut: bool) -> ShownPayload:
        parts: list[str] = []
        depth, hidden, hides_next, hidden_depth = 0, 0, False, None
        lexemes = _TOKEN.findall(text)
        for lexeme, next_lexeme in zip(lexemes, [*lexemes[1:], ""], strict=True):
            opens, closes = lexeme in ("{", "["), lexeme in ("}", "]")
            depth -= closes
            line = f"\n{'  ' * min(depth + opens, _DEEPEST)}"
            if hidden_depth is not None:
                if closes and depth <= hidden_depth:
                    hidden_depth = None
            elif hides_next and lexeme != ":":
                parts.append(HIDDEN)
                hidden, hides_next, hidden_depth = hidden + 1, False, depth if opens else None
            elif opens:
                parts.append(lexeme if next_lexeme in ("}", "]") else lexeme + line)
            elif closes:
                parts.append(lexeme if parts and parts[-1] in ("{", "[") else line + lexeme)
            elif lexeme in (",", ":"):
                parts.append(": " if lexeme == ":" else f",{line}")
            else:
                shown = self.text(lexeme)
                parts.append(shown)
                hidden += shown != lexeme
                hides_next = next_lexeme == ":" and self.hides(lexeme.strip('"'))
            depth += opens
        return ShownPayload("".join(parts), is_json=True, hidden=hidden, cut=cut)


def _plain(key: str) -> str:
    return key.lower().replace("_", "").replace("-", "")
