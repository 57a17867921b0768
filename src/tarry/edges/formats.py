"""Readable instants, and the parsers and formatters of `core.durations`."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta

from tarry.core.durations import DURATIONS, INSTANTS, delay, duration, exact, length, moment, roughly
from tarry.core.errors import InvalidInput

__all__ = [
    "DURATIONS", "INSTANTS", "delay", "duration", "exact", "instant", "length", "moment", "past", "plural",
    "relative", "roughly",
]  # fmt: skip


def instant(at: datetime) -> str:
    """UTC, to the second."""
    return at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def plural(n: int, noun: str, nouns: str | None = None) -> str:
    return f"{n:,} {noun if n == 1 else nouns or noun + 's'}"


def relative(at: datetime, now: datetime) -> str:
    span = at - now
    if abs(span) < timedelta(milliseconds=1):
        return "now"
    return f"in {roughly(span)}" if span > timedelta(0) else f"{roughly(span)} ago"


def past(text: str | None, name: str, now: datetime) -> datetime | None:
    """Parse an instant, or a duration before now."""
    if text is None:
        return None
    with suppress(InvalidInput):
        return now - duration(text, name)
    with suppress(InvalidInput):
        if isinstance(at := moment(text, name), datetime):
            return at
    hint = "write 2h for two hours ago, or a time with its zone: 2030-01-31T18:00:00Z"
    raise InvalidInput(f"{name} is not a time in the past: {text!r:.80}", hint=hint)
