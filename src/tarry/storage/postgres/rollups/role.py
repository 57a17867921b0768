"""`RollupsRole` on PostgreSQL."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from tarry.core.cron.model import DueCount, TickRecord
from tarry.core.dead_letters.redrive import RedriveOutcome
from tarry.core.messages.model import Counted, Counts
from tarry.core.rollups.model import (
    DUE_COUNTED,
    LEAST_DUE_COUNTED,
    MOST_ROWS,
    SAMPLED,
    WIDTHS,
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
from tarry.storage.postgres.arrays import TextArray
from tarry.storage.postgres.journal.bounds import unseen
from tarry.storage.postgres.journal.statements import prefer_bitmap_scans
from tarry.storage.postgres.messages.statements import possible, storable
from tarry.storage.postgres.operation import PostgresOperation, PostgresRole
from tarry.storage.postgres.statement import Op, Row, bind, each, made, value
from tarry.wire.base import same_fields

WINDOW = 50_000
"""Transactions added by one statement."""


class PostgresRollups(PostgresRole):
    def roll_up(self) -> PostgresOperation[RolledUp]:
        return PostgresOperation(lambda own: _roll_up(self._now), atomic=True)

    def slices(
        self, window: RollupWindow, *, sum_of: Sequence[str] | None = None
    ) -> PostgresOperation[list[QueueSlice]]:
        return self._sql("rollups/slices", each(made(QueueSlice)), **_params(window), sum_of=_names(sum_of))

    def times(
        self, measure: Measure, window: RollupWindow, *, sum_of: Sequence[str] | None = None, whole: bool = False
    ) -> PostgresOperation[list[TimeBucket]]:
        what = {"measure": measure.value, "sum_of": _names(sum_of), "whole": whole}
        return self._sql("rollups/times", each(made(TimeBucket)), **_params(window), **what)

    def consumers(self, window: RollupWindow) -> PostgresOperation[list[ConsumerSlice]]:
        return self._sql("rollups/consumers", each(made(ConsumerSlice)), **_params(window))

    def depths(self, window: RollupWindow, sum_of: Sequence[str]) -> PostgresOperation[list[DepthSlice]]:
        return self._sql("rollups/depths", each(made(DepthSlice)), **_params(window), sum_of=_names(sum_of))

    def standings(self, *, limit: int = 1_000, queue: str | None = None) -> PostgresOperation[list[Standing]]:
        return self._sql("rollups/standings", each(partial(_standing, limit=limit)), limit=storable(limit), queue=queue)

    def due_ahead(
        self, since: datetime, until: datetime, every: timedelta, *, queue: str | None = None, limit: int = DUE_COUNTED
    ) -> PostgresOperation[list[DueCount]]:
        span = {"since": since, "until": until, "every": every.total_seconds(), "queue": queue}
        limits = {"limit": storable(limit), "least": LEAST_DUE_COUNTED}
        return self._sql("rollups/due_ahead", each(made(DueCount)), **span, **limits)

    def deaths(
        self, queue: str, width: timedelta, since: datetime, until: datetime, *, limit: int = 5_000
    ) -> PostgresOperation[list[DeathSlice]]:
        params = _params(RollupWindow(width, since, until, queue)) | {"limit": storable(limit)}
        return self._sql("rollups/deaths", each(made(DeathSlice)), **params)

    def redrive_outcome(self, job: int, *, limit: int = 10_000) -> PostgresOperation[RedriveOutcome]:
        decode = partial(_outcome, limit=limit)
        return self._sql("rollups/redrive_outcome", decode, job=possible(job), limit=storable(limit))

    def recent_ticks(
        self, schedules: Sequence[str], until: datetime, *, limit: int
    ) -> PostgresOperation[list[TickRecord]]:
        names = TextArray(schedules)
        return self._sql(
            "rollups/recent_ticks", each(made(TickRecord)), schedules=names, until=until, limit=storable(limit)
        )

    def forget(self, *, limit: int = 10_000) -> PostgresOperation[int]:
        widths = [int(width.total_seconds()) for width in WIDTHS]
        kept_s = [int(kept.total_seconds()) for kept in WIDTHS.values()]
        return self._sql("rollups/forget", value, widths=widths, kept_s=kept_s, limit=storable(limit))


def _names(queues: Sequence[str] | None) -> TextArray | None:
    return None if queues is None else TextArray(queues)


def _params(window: RollupWindow) -> dict[str, Any]:
    return window._asdict() | {"width": int(window.width.total_seconds()), "limit": MOST_ROWS}


def _roll_up(now: datetime | None) -> Op[RolledUp]:
    """Add events in a separate transaction, which locks the head until its end."""
    yield from prefer_bitmap_scans().run()
    heads = yield from bind("rollups/lock_head", list[Row]).run()
    if not heads:
        return RolledUp(0, complete=True)
    head = heads[0]
    next_xid = int(head.snapshot.split(":")[1])
    first_running, current_end, _ = head.current.split(":")
    if next_xid > int(current_end):
        yield from bind("rollups/restart").run()
        return RolledUp(0, complete=True)
    end = next_xid + WINDOW
    is_whole = int(first_running) < end  # all transactions below the first running one have ended
    until, end_xid = (None, None) if is_whole else (f"{end}:{end}:", end)
    window = {"since": head.snapshot, "until": until, "end_xid": end_xid, **unseen(head.snapshot)}
    events = yield from bind("rollups/add", value, **window).run()
    if is_whole:
        yield from bind("rollups/sample", now=now, limit=SAMPLED, least=LEAST_DUE_COUNTED).run()
    return RolledUp(events, complete=is_whole)


def _standing(row: Row, limit: int) -> Standing:
    counts = Counts(
        delayed=Counted(row.later - row.later_held, row.later >= limit),
        ready=Counted(row.due - row.due_held, row.due >= limit),
        leased=Counted(row.due_held + row.later_held, max(row.due, row.later) >= limit),
        dead=Counted(row.dead, row.dead >= limit),
        lag_for=row.lag,
    )
    return Standing(counts=counts, **same_fields(row, Standing, "counts"))


def _outcome(rows: list[Row], limit: int) -> RedriveOutcome:
    if not rows:
        return RedriveOutcome(Counted(0), Counted(0))
    row = rows[0]
    again = Counted(row.died_again, row.walked_dead >= limit)
    return RedriveOutcome(again, Counted(row.live, row.walked_live >= limit))
