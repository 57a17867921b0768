"""`CronRole` on PostgreSQL."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from tarry.core.cron.model import DueCount, ScheduleChange, ScheduleState, TickRecord
from tarry.core.messages.model import Draft
from tarry.core.messages.outcomes import Outcome
from tarry.storage.postgres.arrays import TextArray
from tarry.storage.postgres.cron import operations as ops
from tarry.storage.postgres.cron import statements
from tarry.storage.postgres.messages import operations as message_ops
from tarry.storage.postgres.messages.statements import reserve, storable
from tarry.storage.postgres.operation import PostgresOperation, PostgresRole
from tarry.storage.postgres.statement import Op, each, made, value

FORGET_AT_ONCE = 10_000


class PostgresCron(PostgresRole):
    def schedules(self, name: str | None = None) -> PostgresOperation[list[ScheduleState]]:
        return self._sql("cron/schedules", each(statements.state), name=name)

    def due(self, owned: Sequence[str], *, limit: int = 1000) -> PostgresOperation[list[ScheduleState]]:
        return self._sql("cron/due", each(statements.state), owned=TextArray(owned), limit=limit)

    def next_wake_in(self, owned: Sequence[str]) -> PostgresOperation[timedelta | None]:
        return self._sql("cron/next_wake", value, owned=TextArray(owned))

    def apply_changes(
        self, changes: Sequence[ScheduleChange], *, together: bool = True
    ) -> PostgresOperation[list[bool]]:
        queues = sorted({tick.queue for change in changes for tick in change.ticks if tick.queue is not None})

        def start(own: bool) -> Op[list[bool]]:  # noqa: FBT001
            def offer(queue: str, drafts: Sequence[Draft]) -> Op[list[Outcome]]:
                return self._creating(queue, own, lambda now: message_ops.offer_many(queue, drafts, now), list)

            for queue in queues:  # before anything is written: an op that finds a queue missing is started again
                yield from self._creating(queue, own, lambda now, name=queue: reserve(name, 0, now).run(), bool)
            return (yield from ops.apply_changes(changes, offer, self._clock.pinned(), together=together))

        return PostgresOperation(start, atomic=True)

    def ticks(
        self, name: str, *, since: datetime | None = None, until: datetime | None = None, limit: int = 100
    ) -> PostgresOperation[list[TickRecord]]:
        rows = {"name": name, "since": since, "until": until, "limit": storable(limit)}
        return self._sql("cron/ticks", each(statements.record), **rows)

    def waiting_ticks(self, name: str) -> PostgresOperation[list[TickRecord]]:
        return self._sql("cron/undelivered", each(statements.record), name=name)

    def forget_ticks(self, before: datetime) -> PostgresOperation[int]:
        return self._statement(lambda now: statements.forget(before, FORGET_AT_ONCE))

    def due_counts(self, since: datetime, until: datetime, every: timedelta) -> PostgresOperation[list[DueCount]]:
        span = {"since": since, "until": until, "every": every.total_seconds()}
        return self._sql("cron/due_counts", each(made(DueCount)), **span)
