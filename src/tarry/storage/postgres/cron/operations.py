"""Changes of schedules: one transaction each, or one for many. Compare-and-set: a concurrent writer loses and retries."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime

from tarry.core.cron.model import ScheduleChange, TickChange
from tarry.core.errors import InvalidState
from tarry.core.messages.model import Draft
from tarry.core.messages.outcomes import Outcome
from tarry.storage.postgres.cron import statements
from tarry.storage.postgres.cron.statements import Ledgers, Tick
from tarry.storage.postgres.statement import Op

Offer = Callable[[str, Sequence[Draft]], Op[list[Outcome]]]
"""Offers to a queue, which is created if it is missing and the settings allow it."""


def apply_changes(
    changes: Sequence[ScheduleChange], offer: Offer, now: datetime | None, *, together: bool
) -> Op[list[bool]]:
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
