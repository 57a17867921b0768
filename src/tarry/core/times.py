"""Durations and instants as people and programs write them. What cannot be read is said in full, with what could be."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from tarry.core import limits
from tarry.core.errors import InvalidInput

_NUMBER = r"[0-9]+(?:[.,][0-9]+)?"
_PLAIN = re.compile(_NUMBER)
_COMPACT = re.compile(
    rf"(?:(?P<weeks>{_NUMBER})w)?(?:(?P<days>{_NUMBER})d)?(?:(?P<hours>{_NUMBER})h)?(?:(?P<minutes>{_NUMBER})m)?"
    rf"(?:(?P<seconds>{_NUMBER})s)?(?:(?P<milliseconds>{_NUMBER})ms)?"
)
_ISO = re.compile(
    rf"P(?=.)(?:(?P<weeks>{_NUMBER})W)?(?:(?P<days>{_NUMBER})D)?"
    rf"(?:T(?=.)(?:(?P<hours>{_NUMBER})H)?(?:(?P<minutes>{_NUMBER})M)?(?:(?P<seconds>{_NUMBER})S)?)?"
)
_ISO_CALENDAR = re.compile(rf"P(?:{_NUMBER}[YMWD])*{_NUMBER}[YM](?:{_NUMBER}[YMWD])*(?:T.*)?")
_INSTANT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?(?P<zone>.*)")
_ZONE = re.compile(r"[Zz]|[+-][0-9]{2}:[0-9]{2}")

DURATIONS = "write it like 90s, 15m, 2h, 1h30m, 1d, PT15M, or as plain seconds"
INSTANTS = "write it like 2030-01-31T18:00:00Z or 2030-01-31T18:00:00+02:00, or +10m for ten minutes from now"


def duration(text: str, name: str) -> timedelta:
    """`name` is what the user calls it (`--in`), for the error."""
    stripped = text.strip()
    if stripped.startswith("-"):
        raise InvalidInput(f"{name} must not be negative: {text!r:.80}", hint=DURATIONS)
    if _PLAIN.fullmatch(stripped):
        parts = {"seconds": stripped}
    elif found := stripped and (_COMPACT.fullmatch(stripped) or _ISO.fullmatch(stripped.upper())):
        parts = {unit: number for unit, number in found.groupdict().items() if number}
    elif _ISO_CALENDAR.fullmatch(stripped.upper()):
        raise InvalidInput(f"{name}: a year or a month has no fixed length: {text!r:.80}", hint="say it in days: 30d")
    else:
        raise InvalidInput(f"{name} is not a duration: {text!r:.80}", hint=DURATIONS)
    try:
        return timedelta(**{unit: float(number.replace(",", ".")) for unit, number in parts.items()})
    except OverflowError:
        raise InvalidInput(f"{name} is too long: {text!r:.80}", hint="the longest delay is 10 years") from None


def delay(text: str, name: str) -> timedelta:
    return limits.check_delay(duration(text, name), name)


def moment(text: str, name: str) -> datetime | timedelta:
    """An instant; or, for `+10m`, the time from now, which the database's clock decides."""
    stripped = text.strip()
    if stripped.startswith("+"):
        return delay(stripped[1:], name)
    found = _INSTANT.fullmatch(stripped)
    if not found:
        raise InvalidInput(f"{name} is not a time: {text!r:.80}", hint=INSTANTS)
    if not found["zone"]:
        raise InvalidInput(f"{name} has no time zone: {text!r:.80}", hint="append Z for UTC, or an offset like +02:00")
    if not _ZONE.fullmatch(found["zone"]):
        raise InvalidInput(f"{name} has a time zone that cannot be read: {text!r:.80}", hint=INSTANTS)
    try:
        return datetime.fromisoformat(stripped.upper()).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise InvalidInput(f"{name} is not a time: {text!r:.80} ({error})", hint=INSTANTS) from None


def exact(at: datetime | None) -> str | None:
    """As programs read it: RFC 3339 in UTC, to the microsecond."""
    return None if at is None else at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
