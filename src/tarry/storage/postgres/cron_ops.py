"""Rulings about schedules: one transaction each, or one for many. Whoever comes second finds that it is second."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime

from tarry.core.cron import Ruling, TickRuling
from tarry.core.errors import Refused
from tarry.core.messages import Draft
from tarry.core.outcomes import Outcome
from tarry.storage.postgres import cron_statements as statements
from tarry.storage.postgres.cron_statements import Ledgers, Tick
from tarry.storage.postgres.statement import Op

Offer = Callable[[str, Sequence[Draft]], Op[list[Outcome]]]
"""Offers to a queue, which is made on the way where it may be."""

FORGET_AT_ONCE = 10_000


def rule(rulings: Sequence[Ruling], offer: Offer, now: datetime | None, *, together: bool) -> Op[list[bool]]:
    """In one transaction. Which of them held: a ruling about something that has changed since does nothing. `together`:
    all of them, or none; else a move of a schedule that is locked by another transaction is not waited for, and does not
    hold."""
    nothing = [False] * len(rulings)
    if together and (len(rulings) > 1 or any(ruling.moves_only for ruling in rulings)):
        there = yield from statements.lock([ruling.prefix for ruling in rulings]).run()
        if any(there.get(ruling.prefix) != ruling.expected for ruling in rulings):
            return nothing
    held = yield from _claimed(rulings)
    if not held:
        return nothing
    if together and len(held) < len(rulings):
        # Nobody can lock a row that is not there yet. The transaction ends with this.
        raise Refused("somebody else installed one of these schedules at the same moment", hint="try again")
    standing = [ruling for ruling in rulings if ruling.prefix in held]
    if any(ruling.withdraw for ruling in standing):
        yield from statements.withdraw(standing, held, now).run()
    decided = [(ruling, one) for ruling in standing for one in ruling.ticks]
    if decided:
        entered = yield from _entered(decided, held)
        made: dict[str, list[tuple[str, Tick, Draft]]] = defaultdict(list)
        for ruling, one in decided:
            tick = (held[ruling.prefix], one.hash, one.tick)
            if one.draft is not None and one.queue is not None and tick in entered:
                made[one.queue].append((ruling.prefix, tick, one.draft))
        for queue in sorted(made):
            yield from _make(queue, made[queue], offer, now)
    return [ruling.prefix in held for ruling in rulings]


def _claimed(rulings: Sequence[Ruling]) -> Op[Ledgers]:
    """The schedules whose rulings hold, with the names of their ledgers."""
    moves = [ruling for ruling in rulings if ruling.moves_only]
    puts = [ruling for ruling in rulings if not ruling.moves_only and ruling.after is not None]
    removals = [ruling for ruling in rulings if not ruling.moves_only and ruling.after is None]
    held: Ledgers = {}
    if moves:
        held |= yield from statements.move(moves).run()
    if puts and (there := (yield from statements.put(puts).run())):
        held |= yield from statements.adopt(there).run()
    if removals:
        held |= yield from statements.remove(removals).run()
    return held


def _entered(decided: Sequence[tuple[Ruling, TickRuling]], ledgers: Ledgers) -> Op[set[Tick]]:
    """The ticks that the ledger let in. Of those that have come, it may have known some before it forgot them; what lies
    ahead costs no second question."""
    entered = yield from statements.ledger(decided, ledgers).run()
    past = {
        (ledgers[ruling.prefix], one.hash, one.tick): ruling.by_instant(one)
        for ruling, one in decided
        if one.draft and one.tick <= ruling.ruled_at
    }
    doubtful = {tick: by_instant for tick, by_instant in past.items() if entered.get(tick)}
    forgotten = (yield from statements.unmake(doubtful).run()) if doubtful else set[Tick]()
    return entered.keys() - forgotten


def _make(queue: str, made: Sequence[tuple[str, Tick, Draft]], offer: Offer, now: datetime | None) -> Op[None]:
    outcomes = yield from offer(queue, [draft for _, _, draft in made])
    # A key that somebody else's message has is left to it: the ledger then names no message.
    created = [
        (prefix, tick, draft.key)
        for (prefix, tick, draft), outcome in zip(made, outcomes, strict=True)
        if outcome is Outcome.CREATED
    ]
    if created:
        yield from statements.note(queue, created, now).run()
