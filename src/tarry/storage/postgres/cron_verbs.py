"""The verbs of schedules as ops, with what the shell knows filled in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from tarry.core.clock import Clock
from tarry.core.cron import Ruling, ScheduleState, TickRecord
from tarry.core.scheduling import DueCount
from tarry.storage.postgres import cron_ops
from tarry.storage.postgres import cron_statements as statements
from tarry.storage.postgres.cron_ops import Offer
from tarry.storage.postgres.statement import Op


class CronVerbs:
    def __init__(self, clock: Clock, offer: Offer, known: Callable[[str], Op[None]]) -> None:
        self._clock = clock
        self._offer = offer
        self._known = known

    def schedules(self, prefix: str | None) -> Op[list[ScheduleState]]:
        return statements.schedules(prefix).run()

    def due_schedules(self, owned: Sequence[str], limit: int) -> Op[list[ScheduleState]]:
        return statements.due(owned, limit, self._clock.pinned()).run()

    def next_wake_in(self, owned: Sequence[str]) -> Op[timedelta | None]:
        return statements.next_wake(owned, self._clock.pinned()).run()

    def rule(self, rulings: Sequence[Ruling], *, together: bool) -> Op[list[bool]]:
        # Before anything is written: an op that finds a queue missing is begun again.
        for queue in sorted({one.queue for ruling in rulings for one in ruling.ticks if one.queue is not None}):
            yield from self._known(queue)
        return (yield from cron_ops.rule(rulings, self._offer, self._clock.pinned(), together=together))

    def ticks(self, prefix: str, since: datetime | None, until: datetime | None, limit: int) -> Op[list[TickRecord]]:
        return statements.ticks(prefix, since, until, limit).run()

    def waiting_ticks(self, prefix: str) -> Op[list[TickRecord]]:
        return statements.waiting(prefix).run()

    def forget_ticks(self, before: datetime) -> Op[int]:
        return statements.forget(before, cron_ops.FORGET_AT_ONCE).run()

    def due_counts(self, since: datetime, until: datetime, every: timedelta) -> Op[list[DueCount]]:
        return statements.due_counts(since, until, every).run()
