"""Cron expressions as wall-clock readings. The only file that knows cronsim; zones are none of its business.

cronsim parses, and finds the next reading that fits. What happens when clocks are set is decided in `schedules`, in one
way for five and for six fields; cronsim's own handling follows Debian's, which tells them apart by how they are written.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache

from cronsim import CronSim, CronSimError

from tarry.core.errors import InvalidInput

LONGEST = 200
ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
FIELDS = "minute hour day-of-month month day-of-week, with a field for the second before them if there are six"
_EXAMPLE = "write it like '30 2 * * *' (02:30 every day), '0 18 L * *' (last of the month), '0 9 * * 1#1' or @daily"
_EVERY_HOUR = set(range(24))
_YEAR_2000 = datetime(2000, 1, 1)  # noqa: DTZ001 - a reading of a wall clock


@dataclass(frozen=True, slots=True)
class CronExpression:
    """A checked expression in its canonical form: aliases spelt out, upper case, single spaces."""

    text: str
    _parsed: CronSim = field(compare=False, repr=False)

    @property
    def names_hours(self) -> bool:
        """Whether it is about some hours of the day, and not about every one."""
        return self._parsed.hours != _EVERY_HOUR

    def next_reading(self, after: datetime) -> datetime | None:
        """The next reading that fits; None if there is none within 50 years."""
        search = copy(self._parsed)  # parsing anew would take longer than searching
        search.dt = after.replace(microsecond=0)
        try:
            return next(search)
        except (StopIteration, OverflowError, ValueError):
            return None

    def explain(self) -> str:
        return self._parsed.explain()


@lru_cache(maxsize=10_000)
def parse(text: str) -> CronExpression:
    """Refused with the field that is wrong, and before anything is expanded."""
    if not isinstance(text, str) or not text.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"a cron expression is text with five or six fields: {FIELDS}", hint=_EXAMPLE)
    if len(text) > LONGEST:
        raise InvalidInput(f"a cron expression has at most {LONGEST} characters, not {len(text):,}")
    words = text.split()
    if words[0].startswith("@"):
        if len(words) > 1 or words[0].lower() not in ALIASES:
            raise InvalidInput(
                f"there is no alias {text.strip()!r}; there are {', '.join(sorted(ALIASES))}",
                hint="for a fixed interval use a periodic schedule: install_periodic, or --every 5m",
            )
        words = ALIASES[words[0].lower()].split()
    canonical = " ".join(words).upper()
    try:
        parsed = CronSim(canonical, _YEAR_2000)
    except (CronSimError, ValueError, AssertionError) as error:
        raise InvalidInput(_complaint(text.strip(), words, str(error)), hint=_EXAMPLE) from error
    expression = CronExpression(canonical, parsed)
    if expression.next_reading(_YEAR_2000) is None:
        raise InvalidInput(f"the cron expression {text.strip()!r} never fires: no day is like that", hint=_EXAMPLE)
    return expression


_PLACES = ("second", "minute", "hour", "day-of-month", "month", "day-of-week")


def _complaint(text: str, words: list[str], said: str) -> str:
    if len(words) not in (5, 6):
        many = "1 field" if len(words) == 1 else f"{len(words)} fields"
        return f"the cron expression {text!r} has {many}, and needs five or six: {FIELDS}"
    places = _PLACES if len(words) == 6 else _PLACES[1:]
    place = said.removeprefix("Bad ")
    if place not in places:
        return f"the cron expression {text!r} cannot be read"
    return f"the {place} field of the cron expression {text!r} is wrong: {words[places.index(place)]!r}"
