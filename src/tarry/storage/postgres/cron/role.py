"""`CronRole` on PostgreSQL.

Changes of schedules take one transaction each, or one for many. Compare-and-set: a concurrent writer loses and retries.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from tarry.core.cron.model import DueCount, ScheduleChange, ScheduleState, TickChange, TickRecord
from tarry.core.errors import InvalidState
from tarry.core.messages.model import Draft
from tarry.core.messages.outcomes import Outcome
from tarry.storage.postgres.arrays import TextArray
from tarry.storage.postgres.cron import statements
from tarry.storage.postgres.cron.statements import Ledgers, Tick
from tarry.storage.postgres.messages import operations as message_ops
from tarry.storage.postgres.messages.statements import reserve, storable
from tarry.storage.postgres.operation import PostgresOperation, PostgresRole
from tarry.storage.postgres.statement import Op, each, made, value

FORGET_AT_ONCE = 10_000
Offer = Callable[[str, Sequence[Draft]], Op[list[Outcome]]]
"""Offers to a queue, which is created if it is missing and the settings allow it."""


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
            return (yield from _apply(changes, offer, self._now, together=together))

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


def _apply(changes: Sequence[ScheduleChange], offer: Offer, now: datetime | None, *, together: bool) -> Op[list[bool]]:
    """Apply changes in one transaction, and return which were applied: one of a schedule that has changed since it was read
    is not. `together`: all of them, or none; else a move of a schedule that another transaction has locked is not waited
    for, and not applied."""
    nothing = [False] * len(changes)
    if together and (len(changes) > 1 or any(change.moves_only for change in changes)):
        revisions = yield from statements.lock([change.name for change in changes]).run()
        if any(revisions.get(change.name) != change.expected for change in changes):
            return nothing
    ledgers = yield from _store(changes)
    if not ledgers:
        return nothing
    if together and len(ledgers) < len(changes):
        # A row that does not exist yet cannot be locked. This error rolls the transaction back.
        raise InvalidState("another process installed one of these schedules at the same moment", hint="try again")
    stored = [change for change in changes if change.name in ledgers]
    if any(change.withdraw for change in stored):
        yield from statements.withdraw(stored, ledgers, now).run()
    decided = [(change, tick_change) for change in stored for tick_change in change.ticks]
    if decided:
        entered = yield from _enter(decided, ledgers)
        planned: dict[str, list[tuple[str, Tick, Draft]]] = defaultdict(list)
        for change, tick_change in decided:
            tick = (ledgers[change.name], tick_change.hash, tick_change.tick)
            if tick_change.draft is not None and tick_change.queue is not None and tick in entered:
                planned[tick_change.queue].append((change.name, tick, tick_change.draft))
        for queue in sorted(planned):
            yield from _offer(queue, planned[queue], offer, now)
    return [change.name in ledgers for change in changes]


def _store(changes: Sequence[ScheduleChange]) -> Op[Ledgers]:
    """Store the new states of schedules that are still at the expected revision; returns their ledgers."""
    moves = [change for change in changes if change.moves_only]
    installs = [change for change in changes if not change.moves_only and change.after is not None]
    removals = [change for change in changes if not change.moves_only and change.after is None]
    ledgers: Ledgers = {}
    if moves:
        ledgers |= yield from statements.advance(moves).run()
    if installs and (installed := (yield from statements.store(installs).run())):
        ledgers |= yield from statements.adopt_ledger(installed).run()
    if removals:
        ledgers |= yield from statements.remove(removals).run()
    return ledgers


def _enter(decided: Sequence[tuple[ScheduleChange, TickChange]], ledgers: Ledgers) -> Op[set[Tick]]:
    """The ticks that the ledger accepted. Of those that have come, some may have been deleted from it; ticks ahead cost no
    second statement."""
    entered = yield from statements.enter_ticks(decided, ledgers).run()
    past = {
        (ledgers[change.name], tick_change.hash, tick_change.tick): change.by_instant(tick_change)
        for change, tick_change in decided
        if tick_change.draft and tick_change.tick <= change.decided_at
    }
    doubtful = {tick: by_instant for tick, by_instant in past.items() if entered.get(tick)}
    forgotten = (yield from statements.remove_forgotten(doubtful).run()) if doubtful else set[Tick]()
    return entered.keys() - forgotten


def _offer(queue: str, planned: Sequence[tuple[str, Tick, Draft]], offer: Offer, now: datetime | None) -> Op[None]:
    outcomes = yield from offer(queue, [draft for _, _, draft in planned])
    # If another message has the key, the ledger names no message.
    created = [
        (name, tick, draft.key)
        for (name, tick, draft), outcome in zip(planned, outcomes, strict=True)
        if outcome is Outcome.CREATED
    ]
    if created:
        yield from statements.link_messages(queue, created, now).run()
