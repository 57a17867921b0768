"""Results of the sweeper. Delivery of messages does not depend on it."""

from datetime import date, datetime, timedelta
from typing import NamedTuple

SweepCursor = tuple[tuple[datetime, int] | None, ...]
"""The position of a sweep in a queue, for each priority; opaque to the sweeper."""


class Swept(NamedTuple):
    """The result of one step in one queue. `cursor` is where to continue; None: the end was reached."""

    expired: int = 0
    buried: int = 0
    walked: int = 0
    cursor: SweepCursor | None = None


class Partitions(NamedTuple):
    """Journal partitions for the next days: created now (`made`), existing (`ahead`) and `required`."""

    made: int
    ahead: int
    required: int
    overflowing: bool
    """Events were written on a day without a partition. A few move when it is created; many stay until pruned."""
    more: bool = False
    """There are more steps to do."""


class PrunedDay(NamedTuple):
    """A journal day that no queue retains: dropped with its events, or why it was kept."""

    day: date
    events: int = 0
    why: str | None = None


class VacuumProblem(NamedTuple):
    """A problem that slows down all queues of the database, with a remedy."""

    what: str
    detail: str
    hint: str


LONGEST_SNAPSHOT = timedelta(minutes=5)
"""A transaction that is open for longer prevents vacuum from removing dead rows."""
MOST_DEAD_ROWS = 100_000
"""With more dead rows than this, and than live rows, vacuum is blocked or disabled."""
