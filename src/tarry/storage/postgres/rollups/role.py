"""`RollupsRole` on PostgreSQL."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from tarry.core.cron.model import DueCount, TickRecord
from tarry.core.dead_letters.redrive import RedriveOutcome
from tarry.core.rollups.model import (
    DUE_COUNTED,
    LEAST_DUE_COUNTED,
    MOST_ROWS,
    WIDTHS,
    ConsumerSlice,
    DeathSlice,
    Measure,
    QueueSlice,
    RolledUp,
    Standing,
    TimeBucket,
)
from tarry.storage.postgres.arrays import TextArray
from tarry.storage.postgres.cron.statements import record
from tarry.storage.postgres.messages.statements import possible, storable
from tarry.storage.postgres.operation import PostgresOperation, PostgresRole
from tarry.storage.postgres.rollups import statements
from tarry.storage.postgres.statement import each, made, value


class PostgresRollups(PostgresRole):
    def roll_up(self) -> PostgresOperation[RolledUp]:
        return PostgresOperation(lambda own: statements.roll_up(), atomic=True)

    def slices(
        self,
        width: timedelta,
        since: datetime,
        until: datetime,
        *,
        queue: str | None = None,
        sum_of: Sequence[str] | None = None,
    ) -> PostgresOperation[list[QueueSlice]]:
        window = _window(width, since, until, queue) | {"sum_of": _names(sum_of)}
        return self._sql("rollups/slices", each(made(QueueSlice)), **window)

    def times(
        self,
        measure: Measure,
        width: timedelta,
        since: datetime,
        until: datetime,
        *,
        queue: str | None = None,
        sum_of: Sequence[str] | None = None,
        whole: bool = False,
    ) -> PostgresOperation[list[TimeBucket]]:
        window = _window(width, since, until, queue) | {"sum_of": _names(sum_of), "whole": whole}
        return self._sql("rollups/times", each(made(TimeBucket)), measure=measure.value, **window)

    def consumers(
        self, width: timedelta, since: datetime, until: datetime, *, queue: str | None = None
    ) -> PostgresOperation[list[ConsumerSlice]]:
        return self._sql("rollups/consumers", each(made(ConsumerSlice)), **_window(width, since, until, queue))

    def standings(self, *, limit: int = 1_000, queue: str | None = None) -> PostgresOperation[list[Standing]]:
        return self._sql("rollups/standings", statements.standings(limit), limit=storable(limit), queue=queue)

    def due_ahead(
        self, since: datetime, until: datetime, every: timedelta, *, queue: str | None = None, limit: int = DUE_COUNTED
    ) -> PostgresOperation[list[DueCount]]:
        span = {"since": since, "until": until, "every": every.total_seconds(), "queue": queue}
        limits = {"limit": storable(limit), "least": LEAST_DUE_COUNTED}
        return self._sql("rollups/due_ahead", each(made(DueCount)), **span, **limits)

    def deaths(
        self, queue: str, width: timedelta, since: datetime, until: datetime, *, limit: int = 5_000
    ) -> PostgresOperation[list[DeathSlice]]:
        window = _window(width, since, until, queue) | {"limit": storable(limit)}
        return self._sql("rollups/deaths", each(statements.death_slice), **window)

    def redrive_outcome(self, job: int, *, limit: int = 10_000) -> PostgresOperation[RedriveOutcome]:
        return self._sql("rollups/redrive_outcome", statements.outcome(limit), job=possible(job), limit=storable(limit))

    def recent_ticks(
        self, schedules: Sequence[str], until: datetime, *, limit: int
    ) -> PostgresOperation[list[TickRecord]]:
        names = TextArray(schedules)
        return self._sql("rollups/recent_ticks", each(record), schedules=names, until=until, limit=storable(limit))

    def forget(self, *, limit: int = 10_000) -> PostgresOperation[int]:
        widths = [int(width.total_seconds()) for width in WIDTHS]
        kept_s = [int(kept.total_seconds()) for kept in WIDTHS.values()]
        return self._sql("rollups/forget", value, widths=widths, kept_s=kept_s, limit=storable(limit))


def _names(queues: Sequence[str] | None) -> TextArray | None:
    return None if queues is None else TextArray(queues)


def _window(width: timedelta, since: datetime, until: datetime, queue: str | None) -> dict[str, Any]:
    return {"width": int(width.total_seconds()), "since": since, "until": until, "queue": queue, "limit": MOST_ROWS}
