"""What a sweeper finds and does. Nothing of it is needed for a message to be delivered."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

SweepPlace = tuple[tuple[datetime, int] | None, ...]
"""How far a walk along a queue has come, for each priority; opaque to whoever sweeps, who hands it back."""


class Swept(NamedTuple):
    """One step along one queue. `place` is where to go on; None: it was walked to its end."""

    expired: int = 0
    buried: int = 0
    walked: int = 0
    place: SweepPlace | None = None


class Partitions(NamedTuple):
    """Room for the journal ahead: how many partitions were made now, and how many of those wanted are there."""

    made: int
    ahead: int
    wanted: int
    overflowing: bool
    """Events came in on a day without a partition. A few move when it is made; many stay until they are pruned."""
    more: bool = False
    """The work is done in steps, and this was not the last."""


class Strain(NamedTuple):
    """Something that makes every queue of this database slower, with what to do about it."""

    what: str
    found: str
    hint: str


LONGEST_SNAPSHOT = timedelta(minutes=5)
"""A transaction that is open for longer keeps dead rows from being cleaned up for too long."""
MOST_DEAD_ROWS = 100_000
"""And more of them than live ones: then vacuum is held up, or switched off."""
