"""Parsing and formatting of durations and instants. Errors quote the text and list the accepted forms."""

import re
from datetime import UTC, datetime, timedelta
from typing import overload

from tarry.core import limits
from tarry.core.errors import InvalidInput

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LONGEST_TEXT = 64
"""Maximum length of a duration or an instant. A longer text is rejected before it is parsed."""
_NUMBER = "[0-9]+(?:[.,][0-9]+)?"


def _terms(**units: str) -> str:
    """A pattern of numbers with units, each unit at most once and in this order."""
    return "".join(f"(?:(?P<{name}>{_NUMBER}){unit})?" for name, unit in units.items())


_DURATIONS = (
    re.compile(f"(?P<seconds>{_NUMBER})"),
    re.compile(_terms(weeks="w", days="d", hours="h", minutes="m", seconds="s", milliseconds="ms")),
    re.compile(
        f"P{_terms(years='Y', months='M', weeks='W', days='D')}(?:T(?=.){_terms(hours='H', minutes='M', seconds='S')})?",
        re.IGNORECASE,
    ),
)
"""Plain seconds, `1h30m`, and ISO 8601."""
_INSTANT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?(?P<zone>.*)")
_ZONE = re.compile(r"[Zz]|[+-][0-9]{2}:[0-9]{2}")

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"))
_FINEST = ((86_400, 3_600), (3_600, 60))
"""From this many seconds on, round to this many seconds."""
DURATIONS = "write it like 90s, 15m, 2h, 1h30m, 1d, PT15M, or as plain seconds"
INSTANTS = "write it like 2030-01-31T18:00:00Z or 2030-01-31T18:00:00+02:00, or +10m for ten minutes from now"


def duration(text: str, name: str) -> timedelta:
    """Parse a duration. `name` is the option or field (`--after`), for the error."""
    stripped = _stripped(text, name, "a duration", DURATIONS)
    if stripped.startswith("-"):
        raise InvalidInput(f"{name} must not be negative: {text!r:.80}", hint=DURATIONS)
    match = next((match for pattern in _DURATIONS if (match := pattern.fullmatch(stripped))), None)
    parts = {} if match is None else {unit: number for unit, number in match.groupdict().items() if number}
    if not parts:
        raise InvalidInput(f"{name} is not a duration: {text!r:.80}", hint=DURATIONS)
    if "years" in parts or "months" in parts:
        raise InvalidInput(f"{name}: a year or a month has no fixed length: {text!r:.80}", hint="write it in days: 30d")
    try:
        return timedelta(**{unit: float(number.replace(",", ".")) for unit, number in parts.items()})
    except OverflowError:
        raise InvalidInput(f"{name} is too long: {text!r:.80}", hint="the longest delay is 10 years") from None


def delay(text: str, name: str) -> timedelta:
    return limits.check_delay(duration(text, name), name)


def moment(text: str, name: str) -> datetime | timedelta:
    """Parse an instant, or `+10m` as a duration, to be added to the database's clock."""
    stripped = _stripped(text, name, "a time", INSTANTS)
    if stripped.startswith("+"):
        return delay(stripped[1:], name)
    match = _INSTANT.fullmatch(stripped)
    if not match:
        raise InvalidInput(f"{name} is not a time: {text!r:.80}", hint=INSTANTS)
    if not match["zone"]:
        raise InvalidInput(f"{name} has no time zone: {text!r:.80}", hint="append Z for UTC, or an offset like +02:00")
    if not _ZONE.fullmatch(match["zone"]):
        raise InvalidInput(f"{name} has a time zone that cannot be read: {text!r:.80}", hint=INSTANTS)
    try:
        return datetime.fromisoformat(stripped.upper()).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise InvalidInput(f"{name} is not a time: {text!r:.80} ({error})", hint=INSTANTS) from None


def floored(at: datetime, step: timedelta, origin: datetime = _EPOCH) -> datetime:
    """The last multiple of `step` since 1970, or since `origin`, that is not after `at`."""
    return at - (at - origin) % step


@overload
def exact(at: datetime) -> str: ...
@overload
def exact(at: datetime | None) -> str | None: ...
def exact(at: datetime | None) -> str | None:
    """Format an instant by RFC 3339, in UTC and to the microsecond."""
    return None if at is None else at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


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


def _stripped(text: str, name: str, what: str, hint: str) -> str:
    if len(text) > LONGEST_TEXT:
        raise InvalidInput(f"{name}: {what} has at most {LONGEST_TEXT} characters, got {len(text):,}", hint=hint)
    return text.strip()
