"""Cron expressions as wall-clock readings, without zones. The only module that uses cronsim.

cronsim parses expressions and finds the next matching reading. `schedule_types` handles clock changes, in the same way for
five and six fields; cronsim's own handling follows Debian's, which depends on how the fields are written."""

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
        """Whether the expression is restricted to some hours of the day."""
        return self._parsed.hours != _EVERY_HOUR

    def next_reading(self, after: datetime) -> datetime | None:
        """The next matching reading; None if there is none within 50 years."""
        search = copy(self._parsed)  # parsing again would take longer than the search
        search.dt = after.replace(microsecond=0)
        try:
            return next(search)
        except (StopIteration, OverflowError, ValueError):
            return None

    def explain(self) -> str:
        return self._parsed.explain()


@lru_cache(maxsize=10_000)
def parse(text: str) -> CronExpression:
    """Parse an expression. Errors name the wrong field, and are raised before anything is expanded."""
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
        raise InvalidInput(_error_text(text.strip(), words, str(error)), hint=_EXAMPLE) from error
    expression = CronExpression(canonical, parsed)
    if expression.next_reading(_YEAR_2000) is None:
        raise InvalidInput(f"the cron expression {text.strip()!r} never fires: no date matches it", hint=_EXAMPLE)
    return expression


_FIELD_NAMES = ("second", "minute", "hour", "day-of-month", "month", "day-of-week")


def _error_text(text: str, words: list[str], cronsim_error: str) -> str:
    if len(words) not in (5, 6):
        many = "1 field" if len(words) == 1 else f"{len(words)} fields"
        return f"the cron expression {text!r} has {many}, and needs five or six: {FIELDS}"
    names = _FIELD_NAMES if len(words) == 6 else _FIELD_NAMES[1:]
    name = cronsim_error.removeprefix("Bad ")
    if name not in names:
        return f"the cron expression {text!r} cannot be read"
    return f"the {name} field of the cron expression {text!r} is wrong: {words[names.index(name)]!r}"
