"""The role of a store for rollups of its journal, from which dashboards read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

from tarry.core.cron.model import DueCount, TickRecord
from tarry.core.dead_letters.redrive import RedriveOutcome
from tarry.core.operation import Operation
from tarry.core.rollups.model import ConsumerSlice, DeathSlice, Measure, QueueSlice, RolledUp, Standing, TimeBucket

MOST_ROWS = 200_000
DUE_COUNTED = 20_000
"""Messages that `due_ahead` counts of one priority, which all queues share."""
LEAST_DUE_COUNTED = 100
"""Of each queue, however many there are."""


def due_share(queues: int, limit: int = DUE_COUNTED) -> int:
    """How many messages of each queue and priority `due_ahead` counts."""
    return max(LEAST_DUE_COUNTED, limit // max(1, queues))


class RollupsRole(Protocol):
    """Reads are of one width (`model.WIDTHS`), between two instants, of one queue or of all; at most `MOST_ROWS` rows."""

    def roll_up(self) -> Operation[RolledUp]:
        """Add new events to their slices, each event once, a bounded number of transactions at a time. Any number of
        processes may call it: one works, the others do not wait."""
        ...

    def slices(
        self, width: timedelta, since: datetime, until: datetime, *, queue: str | None = None
    ) -> Operation[list[QueueSlice]]: ...
    def times(
        self, measure: Measure, width: timedelta, since: datetime, until: datetime, *, queue: str | None = None
    ) -> Operation[list[TimeBucket]]: ...
    def consumers(
        self, width: timedelta, since: datetime, until: datetime, *, queue: str | None = None
    ) -> Operation[list[ConsumerSlice]]:
        """`width`: one of `model.CONSUMER_WIDTHS`."""
        ...

    def standings(self, *, limit: int = 1_000) -> Operation[list[Standing]]:
        """All queues by name, with counts that stop at `limit`."""
        ...

    def due_ahead(
        self, since: datetime, until: datetime, every: timedelta, *, queue: str | None = None, limit: int = DUE_COUNTED
    ) -> Operation[list[DueCount]]:
        """How many live messages come due when. Of each queue and priority the first ones are counted, see `due_share`, so
        this stays cheap; `CronRole.due_counts` counts all."""
        ...

    def deaths(
        self, queue: str, width: timedelta, since: datetime, until: datetime, *, limit: int = 5_000
    ) -> Operation[list[DeathSlice]]:
        """When the newest `limit` dead letters of a queue died, by fingerprint. `width`: any."""
        ...

    def redrive_outcome(self, job: int, *, limit: int = 10_000) -> Operation[RedriveOutcome]:
        """What became of what a redrive job has revived, read from at most `limit` dead letters and live messages."""
        ...

    def recent_ticks(self, schedules: Sequence[str], until: datetime, *, limit: int) -> Operation[list[TickRecord]]:
        """The last `limit` entries of the ledger of each schedule up to an instant, by schedule, newest first."""
        ...

    def forget(self, *, limit: int = 10_000) -> Operation[int]:
        """Delete a batch of slices that are older than their width is kept; returns how many."""
        ...
