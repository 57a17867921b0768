"""Schedules of the in-memory store, and the ledger of their ticks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count

from tarry.core.cron import FIRED, Overlap, Reason, Ruling, ScheduleState, TickRecord, TickRuling, Verdict
from tarry.core.events import EventKind
from tarry.core.outcomes import Outcome
from tarry.storage.memory import offers
from tarry.storage.memory.ledgers import Ledgers
from tarry.storage.memory.queues import MemoryQueue
from tarry.storage.memory.rows import Row

Ledger = dict[datetime, dict[str, "Entry"]]
"""By tick, then by hash."""


class Entry:
    """One tick of the ledger. It refers to the queue object, because the name may change."""

    __slots__ = ("queue", "record")

    def __init__(self, record: TickRecord, queue: MemoryQueue | None = None) -> None:
        self.record = record
        self.queue = queue

    @property
    def row(self) -> Row | None:
        """Its message, if it is live and still the planned version."""
        if self.queue is None or self.record.key is None or self.record.verdict is Verdict.WITHDRAWN:
            return None
        row = self.queue.rows.get(self.record.key)
        return row if row is not None and row.version == self.record.version else None

    def told(self) -> TickRecord:
        name = None if self.queue is None else self.queue.name
        return replace(self.record, queue=name, live=self.row is not None)


class Schedules:
    """Not thread-safe: the store's lock is held around every call."""

    def __init__(self, used: Callable[[str, datetime], MemoryQueue]) -> None:
        self._used = used
        self._revisions = count(1)
        self._states: dict[str, ScheduleState] = {}
        self._ledgers = Ledgers()
        self._ledger: dict[str, Ledger] = {}
        self._runs: dict[str, list[TickRecord]] = {}
        self._forgotten: dict[str, dict[str, datetime]] = {}
        """The last tick that was removed from the ledger, by ledger and hash."""

    def all(self, prefix: str | None) -> list[ScheduleState]:
        return [self._seen(state) for name, state in sorted(self._states.items()) if prefix is None or name == prefix]

    def due(self, owned: Sequence[str], limit: int, now: datetime) -> list[ScheduleState]:
        waiting = [
            (state.wake_at, state.prefix)
            for state in self._plannable(owned)
            if state.wake_at is not None and state.is_due(now)
        ]
        return [self._seen(self._states[prefix]) for _, prefix in sorted(waiting)[: max(limit, 0)]]

    def next_wake_in(self, owned: Sequence[str], now: datetime) -> timedelta | None:
        return min((state.wake_at - now for state in self._plannable(owned) if state.wake_at is not None), default=None)

    def rule(self, rulings: Sequence[Ruling], now: datetime, *, together: bool) -> list[bool]:
        queues = {one.queue for ruling in rulings for one in ruling.ticks if one.queue is not None}
        for queue in sorted(queues):
            self._used(queue, now)
        held = [self._stands(ruling) for ruling in rulings]
        if together and not all(held):
            return [False] * len(rulings)
        for ruling, stands in zip(rulings, held, strict=True):
            if stands:
                self._apply(ruling, now)
        return held

    def ticks(self, prefix: str, since: datetime | None, until: datetime | None, limit: int) -> list[TickRecord]:
        ledger = self._ledger_of(prefix)
        found = [entry.told() for entry in self._entries(ledger)] + self._runs.get(ledger, [])
        within = [
            record
            for record in found
            if (since is None or (record.until or record.tick) >= since) and (until is None or record.tick <= until)
        ]
        within.sort(key=lambda record: (record.tick, record.until is None), reverse=True)
        return within[: max(limit, 0)]

    def waiting(self, prefix: str) -> list[TickRecord]:
        entries = self._entries(self._ledger_of(prefix))
        found = [entry.told() for entry in entries if (row := entry.row) is not None and row.attempt == 0]
        return sorted(found, key=lambda record: record.tick)

    def forget(self, before: datetime) -> int:
        old = [
            entry.record
            for ledger in self._ledger
            for entry in self._entries(ledger)
            if _is_old(entry.record, before) and entry.row is None
        ]
        for record in old:
            same_tick = self._ledger[record.ledger][record.tick]
            del same_tick[record.hash]
            if not same_tick:
                del self._ledger[record.ledger][record.tick]
        for ledger, runs in self._runs.items():
            old += [run for run in runs if _is_old(run, before)]
            self._runs[ledger] = [run for run in runs if not _is_old(run, before)]
        for record in old:
            noted, until = self._forgotten.setdefault(record.ledger, {}), record.until or record.tick
            noted[record.hash] = max(until, noted.get(record.hash, until))
        return len(old)

    def renamed(self, name: str, new_name: str) -> None:
        self._ledgers.renamed(name, new_name)
        for prefix, state in self._states.items():
            if state.spec.queue == name:
                spec = replace(state.spec, queue=new_name)
                self._states[prefix] = replace(state, spec=spec, revision=next(self._revisions))

    def _ledger_of(self, prefix: str) -> str:
        """Of a schedule that is gone, the one that its prefix used last."""
        state = self._states.get(prefix)
        return self._ledgers.last(prefix) if state is None else state.ledger

    def _entries(self, ledger: str) -> Iterator[Entry]:
        return (entry for same_tick in self._ledger.get(ledger, {}).values() for entry in same_tick.values())

    def _plannable(self, owned: Sequence[str]) -> Iterator[ScheduleState]:
        return (state for state in self._states.values() if not state.spec.by_code or state.prefix in owned)

    def _seen(self, state: ScheduleState) -> ScheduleState:
        return replace(
            state,
            last_live=state.spec.policy.overlap is Overlap.SKIP and self._last_is_live(state.ledger),
            forgotten_until=self._forgotten_until(state.ledger),
        )

    def _last_is_live(self, ledger: str) -> bool:
        made = [
            (entry.record.tick, entry)
            for entry in self._entries(ledger)
            if entry.record.key is not None and entry.record.verdict is not Verdict.WITHDRAWN
        ]
        if not made:
            return False
        last = max(made, key=lambda one: one[0])[1]
        # Also if it was offered again, or redriven: what counts is a live message of this key.
        return last.queue is not None and last.record.key in last.queue.rows

    def _forgotten_until(self, ledger: str, config_hash: str | None = None) -> datetime | None:
        found = self._forgotten.get(ledger, {})
        return max(found.values(), default=None) if config_hash is None else found.get(config_hash)

    def _stands(self, ruling: Ruling) -> bool:
        state = self._states.get(ruling.prefix)
        return (None if state is None else state.revision) == ruling.expected

    def _apply(self, ruling: Ruling, now: datetime) -> None:
        before, after = self._states.get(ruling.prefix), ruling.after
        name = None if before is None else before.ledger
        if name is None or (after is not None and not ruling.moves_only):
            name = self._ledgers.adopt(ruling.prefix, "" if after is None else after.spec.queue, name)
        if after is None:
            self._states.pop(ruling.prefix, None)
        else:
            self._states[ruling.prefix] = replace(after, revision=next(self._revisions), ledger=name)
        ledger = self._ledger.setdefault(name, {})
        for config_hash, tick, reason in ruling.withdraw:
            if (entry := ledger.get(tick, {}).get(config_hash)) is not None:
                _withdraw(entry, reason, ruling.ruled_at, now)
        for one in ruling.ticks:
            if one.until is not None:
                self._runs.setdefault(name, []).append(_record(ruling, one, name))
                continue
            same_tick = ledger.setdefault(one.tick, {})
            if self._is_open(same_tick, one, ruling, name):
                same_tick[one.hash] = self._entered(ruling, one, name, now)

    def _is_open(self, same_tick: Mapping[str, Entry], one: TickRuling, ruling: Ruling, ledger: str) -> bool:
        """Whether the ledger accepts this tick; equals the rule in `cron_ledger.sql` and `cron_unmake.sql`."""
        others = (other.record.verdict for config_hash, other in same_tick.items() if config_hash != one.hash)
        if ruling.by_instant(one) and not FIRED.isdisjoint(others):
            return False
        entry = same_tick.get(one.hash)
        if entry is None:
            forgotten = self._forgotten_until(ledger, None if ruling.by_instant(one) else one.hash)
            doubtful = one.draft is not None and one.tick <= ruling.ruled_at
            return not doubtful or forgotten is None or one.tick > forgotten
        record = entry.record
        if record.verdict is not Verdict.SKIPPED:
            return record.verdict is Verdict.WITHDRAWN
        return one.verdict is Verdict.BACKFILLED or (
            record.reason is not Reason.BY_HAND and record.decided_at > ruling.ruled_at
        )

    def _entered(self, ruling: Ruling, one: TickRuling, ledger: str, now: datetime) -> Entry:
        record = _record(ruling, one, ledger)
        if one.draft is None or one.queue is None:
            return Entry(record)
        queue = self._used(one.queue, now)
        if offers.offer(queue, one.draft, now) is not Outcome.CREATED:
            return Entry(record)
        row = queue.rows[one.draft.key]
        detail = {"prefix": ruling.prefix, "hash": one.hash, "tick": one.tick.isoformat()}
        queue.note(EventKind.CRON_PLANNED, row, now, detail=detail)
        return Entry(replace(record, key=row.key, version=row.version, due_at=row.due_at), queue)


def _withdraw(entry: Entry, reason: Reason, decided_at: datetime, now: datetime) -> None:
    row = entry.row
    if row is None or row.attempt or entry.queue is None:
        return
    record = entry.record
    detail = {"prefix": record.prefix, "hash": record.hash, "tick": record.tick.isoformat(), "reason": reason.value}
    entry.queue.note(EventKind.CRON_REPLACED, row, now, detail=detail)
    entry.queue.remove(row)
    entry.record = replace(record, verdict=Verdict.WITHDRAWN, reason=reason, decided_at=decided_at)


def _record(ruling: Ruling, one: TickRuling, ledger: str) -> TickRecord:
    return TickRecord(
        ledger=ledger,
        prefix=ruling.prefix,
        hash=one.hash,
        tick=one.tick,
        verdict=one.verdict,
        reason=one.reason,
        decided_at=ruling.ruled_at,
        until=one.until,
        count=one.count,
        due_at=None if one.draft is None else one.draft.due_at,
    )


def _is_old(record: TickRecord, before: datetime) -> bool:
    return record.decided_at < before and (record.until or record.tick) < before
