"""The port of rollups."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

from tarry.core.cron.model import DueCount, TickRecord
from tarry.core.dead_letters.redrive import RedriveOutcome
from tarry.core.operation import Operation
from tarry.core.rollups.model import (
    DUE_COUNTED,
    ConsumerSlice,
    DeathSlice,
    DepthSlice,
    Measure,
    QueueSlice,
    RolledUp,
    RollupWindow,
    Standing,
    TimeBucket,
)


class RollupsRole(Protocol):
    """Rollups of the journal, for dashboards. A read returns at most `MOST_ROWS` rows."""

    def roll_up(self) -> Operation[RolledUp]:
        """Add new events to their slices, each event once, a bounded number of transactions at a time. Any number of
        processes may call it: one works, the others do not wait."""
        ...

    def slices(self, window: RollupWindow, *, sum_of: Sequence[str] | None = None) -> Operation[list[QueueSlice]]:
        """`sum_of`: the sums over these queues instead, under the name ""."""
        ...

    def times(
        self, measure: Measure, window: RollupWindow, *, sum_of: Sequence[str] | None = None, whole: bool = False
    ) -> Operation[list[TimeBucket]]:
        """`sum_of`: as for slices; `whole`: one histogram of the whole window, as if it were one slice."""
        ...

    def consumers(self, window: RollupWindow) -> Operation[list[ConsumerSlice]]:
        """Its width is one of `rollups.model.CONSUMER_WIDTHS`."""
        ...

    def depths(self, window: RollupWindow, sum_of: Sequence[str]) -> Operation[list[DepthSlice]]:
        """The sums over these queues, as `roll_up` sampled them. A store whose `roll_up` has nothing to do has none."""
        ...

    def standings(self, *, limit: int = 1_000, queue: str | None = None) -> Operation[list[Standing]]:
        """All queues by name, or one, with counts that stop at `limit`."""
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
        """How the messages that a redrive job revived ended, read from at most `limit` dead letters and live messages."""
        ...

    def recent_ticks(self, schedules: Sequence[str], until: datetime, *, limit: int) -> Operation[list[TickRecord]]:
        """The last `limit` entries of the ledger of each schedule up to an instant, by schedule, newest first."""
        ...

    def forget(self, *, limit: int = 10_000) -> Operation[int]:
        """Delete a batch of slices that are older than their width is kept; returns how many."""
        ...
