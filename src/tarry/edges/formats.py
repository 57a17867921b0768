"""Durations and instants in readable form, and the parsers of `core.durations`."""

from datetime import UTC, datetime, timedelta

from tarry.core.durations import DURATIONS, INSTANTS, delay, duration, exact, moment
from tarry.core.errors import InvalidInput

__all__ = [
    "DURATIONS", "INSTANTS", "delay", "duration", "exact", "instant", "length", "moment", "past", "relative", "roughly",
]  # fmt: skip

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"))
_FINEST = ((86_400, 3_600), (3_600, 60))
"""From this many seconds on, round to this many seconds."""


def instant(at: datetime) -> str:
    """UTC, to the second."""
    return at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def length(span: timedelta) -> str:
    """A duration in a form that `duration` parses: 1h30m, 1.5s, 250ms."""
    micros = span // timedelta(microseconds=1)
    if micros < 0:
        return "-" + length(-span)
    whole, rest = divmod(micros, 1_000_000)
    if whole == 0 and rest:
        return f"{rest / 1_000:g}ms"
    text = ""
    for size, unit in _UNITS:
        count, whole = divmod(whole, size)
        text += f"{count}{unit}" if count else ""
    seconds = f"{whole + rest / 1_000_000:.6f}".rstrip("0").rstrip(".")
    return text if text and seconds == "0" else f"{text}{seconds}s"


def roughly(span: timedelta) -> str:
    """The two leading units of a duration: 3h12m rather than 3h12m7.25s."""
    seconds = abs(span).total_seconds()
    if seconds < 1:
        return f"{round(seconds * 1000)}ms"
    if seconds < 10:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    finest = next((finest for size, finest in _FINEST if seconds >= size), 1)
    return length(timedelta(seconds=round(seconds / finest) * finest))


def relative(at: datetime, now: datetime) -> str:
    span = at - now
    if abs(span) < timedelta(milliseconds=1):
        return "now"
    return f"in {roughly(span)}" if span > timedelta(0) else f"{roughly(span)} ago"


def past(text: str | None, name: str, now: datetime) -> datetime | None:
    """An instant, or a time ago."""
    if text is None:
        return None
    try:
        return now - duration(text, name)
    except InvalidInput:
        at = moment(text, name)
    if not isinstance(at, datetime):
        hint = "write 2h for two hours ago, or a time with its zone"
        raise InvalidInput(f"{name} must be in the past, got {text!r:.80}", hint=hint)
    return at
