"""The calendar of queue load: a time zone with its clock changes, and holidays."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from tarry.core.cron.timezones import zone_of

_QUARTER = timedelta(minutes=15)
_SUNDAY = 6


@dataclass(frozen=True, slots=True)
class Calendar:
    zone: str = "UTC"
    holidays: frozenset[date] = frozenset()
    """Local dates that are judged, and remembered, like a Sunday."""

    def __post_init__(self) -> None:
        zone_of(self.zone)

    def hour_of_week(self, at: datetime) -> int:
        """0 is Monday, 00:00 local time."""
        local = at.astimezone(zone_of(self.zone))
        return (_SUNDAY if local.date() in self.holidays else local.weekday()) * 24 + local.hour

    def hours(self, day: date) -> Iterator[tuple[int, int]]:
        """The UTC hours of a date, each with the local hour of the week; twice, if the zone's offset includes a half hour."""
        midnight = datetime.combine(day, time(), UTC)
        quarters = (midnight + n * _QUARTER for n in range(96))
        yield from sorted({(at.hour, self.hour_of_week(at)) for at in quarters})

    def text(self) -> str:
        return ",".join((self.zone, *(day.isoformat() for day in sorted(self.holidays))))


UTC_CALENDAR = Calendar()
