"""`CronRole` in memory: schedules, and the ledgers of their ticks."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import count

from tarry.core.cron.model import (
    FIRED,
    DueCount,
    Overlap,
    Reason,
    ScheduleChange,
    ScheduleState,
    TickChange,
    TickRecord,
    Verdict,
)
from tarry.core.journal.events import EventKind
from tarry.core.messages.outcomes import Outcome
from tarry.storage.memory.messages import offer
from tarry.storage.memory.rows import Row
from tarry.storage.memory.state import MemoryQueue, MemoryRole, MemoryState, locked
from tarry.wire.base import same_fields


@dataclass(slots=True, eq=False)
class LedgerEntry:
    """One tick of a ledger. It refers to the queue object, because the name may change."""

    record: TickRecord
    queue: MemoryQueue | None = None

    @property
    def row(self) -> Row | None:
        """Its message, if it is live and still the planned version."""
        if self.queue is None or self.record.key is None or self.record.verdict is Verdict.WITHDRAWN:
            return None
        row = self.queue.rows.get(self.record.key)
        return row if row is not None and row.version == self.record.version else None

    @property
    def current(self) -> TickRecord:
        name = None if self.queue is None else self.queue.name
        return replace(self.record, queue=name, live=self.row is not None)


@dataclass(slots=True, eq=False)
class _Ledger:
    ticks: defaultdict[datetime, dict[str, LedgerEntry]] = field(default_factory=lambda: defaultdict(dict))
    """By tick, then by hash."""
    runs: list[TickRecord] = field(default_factory=list[TickRecord])
    forgotten: dict[str, datetime] = field(default_factory=dict[str, datetime])
    """The last tick that was removed, by hash."""

    def entries(self) -> list[LedgerEntry]:
        return [entry for same_tick in self.ticks.values() for entry in same_tick.values()]

    @property
    def forgotten_until(self) -> datetime | None:
        return max(self.forgotten.values(), default=None)

    @property
    def last_is_live(self) -> bool:
        entries = [entry for entry in self.entries() if entry.record.key is not None]
        made = [entry for entry in entries if entry.record.verdict is not Verdict.WITHDRAWN]
        last = max(made, key=lambda entry: entry.record.tick, default=None)
        # Also if the message was offered again or redriven: any live message with this key counts.
        return last is not None and last.queue is not None and last.record.key in last.queue.rows

    def accepts(self, tick_change: TickChange, change: ScheduleChange) -> bool:
        """Whether this tick is entered: the rule of `cron/enter_ticks.sql` and `remove_forgotten.sql`."""
        same_tick, by_instant = self.ticks[tick_change.tick], change.by_instant(tick_change)
        others = (other.record.verdict for config_hash, other in same_tick.items() if config_hash != tick_change.hash)
        if by_instant and not FIRED.isdisjoint(others):
            return False
        entry = same_tick.get(tick_change.hash)
        if entry is None:
            until = self.forgotten_until if by_instant else self.forgotten.get(tick_change.hash)
            is_doubtful = tick_change.draft is not None and tick_change.tick <= change.decided_at
            return not is_doubtful or until is None or tick_change.tick > until
        record = entry.record
        if record.verdict is not Verdict.SKIPPED:
            return record.verdict is Verdict.WITHDRAWN
        return tick_change.verdict is Verdict.BACKFILLED or (
            record.reason is not Reason.BY_HAND and record.decided_at > change.decided_at
        )

    def forget(self, before: datetime) -> int:
        def is_old(record: TickRecord) -> bool:
            return record.decided_at < before and (record.until or record.tick) < before

        old = [entry.record for entry in self.entries() if is_old(entry.record) and entry.row is None]
        for record in old:
            del self.ticks[record.tick][record.hash]
            if not self.ticks[record.tick]:
                del self.ticks[record.tick]
        old += filter(is_old, self.runs)
        self.runs = [run for run in self.runs if not is_old(run)]
        for record in old:
            until = record.until or record.tick
            self.forgotten[record.hash] = max(until, self.forgotten.get(record.hash, until))
        return len(old)


class MemoryCron(MemoryRole):
    def __init__(self, state: MemoryState) -> None:
        super().__init__(state)
        self._revisions = count(1)
        self._states: dict[str, ScheduleState] = {}
        self._ledger_queues: dict[str, dict[str, str]] = {}
        """The ledgers of each schedule name and their queues, in the order of installation."""
        self._ledgers: dict[str, _Ledger] = {}

    @locked
    def schedules(self, name: str | None = None) -> list[ScheduleState]:
        return [self._current(state) for key, state in sorted(self._states.items()) if name in (None, key)]

    @locked
    def due(self, owned: Sequence[str], *, limit: int = 1000) -> list[ScheduleState]:
        waiting = [
            (state.wake_at, state.name)
            for state in self._plannable(owned)
            if state.wake_at is not None and state.is_due(self._now)
        ]
        return [self._current(self._states[name]) for _, name in sorted(waiting)[: max(limit, 0)]]

    @locked
    def next_wake_in(self, owned: Sequence[str]) -> timedelta | None:
        return min(
            (state.wake_at - self._now for state in self._plannable(owned) if state.wake_at is not None), default=None
        )

    @locked
    def apply_changes(self, changes: Sequence[ScheduleChange], *, together: bool = True) -> list[bool]:
        for queue in sorted({tick.queue for change in changes for tick in change.ticks if tick.queue is not None}):
            self._state.used_queue(queue)
        revisions = {name: state.revision for name, state in self._states.items()}
        applies = [revisions.get(change.name) == change.expected for change in changes]
        if together and not all(applies):
            return [False] * len(changes)
        for change, is_current in zip(changes, applies, strict=True):
            if is_current:
                self._apply(change)
        return applies

    @locked
    def ticks(
        self, name: str, *, since: datetime | None = None, until: datetime | None = None, limit: int = 100
    ) -> list[TickRecord]:
        ledger = self._ledger_of(name)
        records = [
            record
            for record in (*(entry.current for entry in ledger.entries()), *ledger.runs)
            if (since is None or (record.until or record.tick) >= since) and (until is None or record.tick <= until)
        ]
        records.sort(key=lambda record: (record.tick, record.until is None), reverse=True)
        return records[: max(limit, 0)]

    @locked
    def waiting_ticks(self, name: str) -> list[TickRecord]:
        entries = self._ledger_of(name).entries()
        records = [entry.current for entry in entries if (row := entry.row) is not None and row.attempt == 0]
        return sorted(records, key=lambda record: record.tick)

    @locked
    def forget_ticks(self, before: datetime) -> int:
        return sum(ledger.forget(before) for ledger in self._ledgers.values())

    @locked
    def due_counts(self, since: datetime, until: datetime, every: timedelta) -> list[DueCount]:
        counts: Counter[tuple[datetime, str]] = Counter()
        retries: Counter[tuple[datetime, str]] = Counter()
        for queue in self._state.queues.values():
            for row in queue.rows.values():
                if since <= row.due_at < until:
                    key = since + (row.due_at - since) // every * every, queue.name
                    counts[key] += 1
                    retries[key] += row.attempt > 0
        return [DueCount(key[1], key[0], counts[key], retries[key]) for key in sorted(counts)]

    def rename_queue(self, name: str, new_name: str) -> None:
        """Under the store's lock."""
        for queues in self._ledger_queues.values():
            queues.update({ledger: new_name for ledger, queue in queues.items() if queue == name})
        for schedule, state in self._states.items():
            if state.spec.queue == name:
                spec = replace(state.spec, queue=new_name)
                self._states[schedule] = replace(state, spec=spec, revision=next(self._revisions))

    def _ledger_of(self, schedule: str) -> _Ledger:
        """The ledger of a schedule; for a deleted one, the ledger that its name used last."""
        state = self._states.get(schedule)
        name = next(reversed(self._ledger_queues.get(schedule, {schedule: ""}))) if state is None else state.ledger
        return self._ledgers.get(name) or _Ledger()

    def _adopt_ledger(self, schedule: str, queue: str, current: str | None) -> str:
        """The ledger of a newly installed schedule: its current one, the last one with this queue, or a new one. The rule of
        `cron/adopt_ledger.sql`."""
        queues = self._ledger_queues.setdefault(schedule, {})
        before = [name for name, owner in queues.items() if owner == queue]
        if current is not None:
            name = current
        elif before:
            name = before[-1]
        else:
            name = f"~{len(queues)}".ljust(201, "~") + schedule if queues else schedule
        queues.pop(name, None)
        queues[name] = queue
        return name

    def _plannable(self, owned: Sequence[str]) -> Iterator[ScheduleState]:
        return (state for state in self._states.values() if not state.spec.by_code or state.name in owned)

    def _current(self, state: ScheduleState) -> ScheduleState:
        ledger = self._ledgers[state.ledger]
        last_live = state.spec.policy.overlap is Overlap.SKIP and ledger.last_is_live
        return replace(state, last_live=last_live, forgotten_until=ledger.forgotten_until)

    def _apply(self, change: ScheduleChange) -> None:
        before, after = self._states.get(change.name), change.after
        name = None if before is None else before.ledger
        if name is None or (after is not None and not change.moves_only):
            name = self._adopt_ledger(change.name, "" if after is None else after.spec.queue, name)
        if after is None:
            self._states.pop(change.name, None)
        else:
            self._states[change.name] = replace(after, revision=next(self._revisions), ledger=name)
        ledger = self._ledgers.setdefault(name, _Ledger())
        for config_hash, tick, reason in change.withdraw:
            if (entry := ledger.ticks.get(tick, {}).get(config_hash)) is not None:
                _withdraw(entry, reason, change.decided_at)
        for tick_change in change.ticks:
            if tick_change.until is not None:
                ledger.runs.append(_record(change, tick_change, name))
            elif ledger.accepts(tick_change, change):
                ledger.ticks[tick_change.tick][tick_change.hash] = self._enter(change, tick_change, name)

    def _enter(self, change: ScheduleChange, tick_change: TickChange, ledger: str) -> LedgerEntry:
        record = _record(change, tick_change, ledger)
        if tick_change.draft is None or tick_change.queue is None:
            return LedgerEntry(record)
        queue = self._state.used_queue(tick_change.queue)
        if offer(queue, tick_change.draft, self._now) is not Outcome.CREATED:
            return LedgerEntry(record)
        row = queue.rows[tick_change.draft.key]
        queue.note(EventKind.CRON_PLANNED, row, detail=_detail(record))
        return LedgerEntry(replace(record, key=row.key, version=row.version, due_at=row.due_at), queue)


def _withdraw(entry: LedgerEntry, reason: Reason, decided_at: datetime) -> None:
    row = entry.row
    if row is None or row.attempt or entry.queue is None:
        return
    detail = {**_detail(entry.record), "reason": reason.value}
    entry.queue.note(EventKind.CRON_REPLACED, row, detail=detail)
    entry.queue.remove(row)
    entry.record = replace(entry.record, verdict=Verdict.WITHDRAWN, reason=reason, decided_at=decided_at)


def _detail(record: TickRecord) -> dict[str, str]:
    return {"schedule": record.name, "hash": record.hash, "tick": record.tick.isoformat()}


def _record(change: ScheduleChange, tick_change: TickChange, ledger: str) -> TickRecord:
    due_at = None if tick_change.draft is None else tick_change.draft.due_at
    own = same_fields(tick_change, TickRecord, "queue")
    return TickRecord(ledger=ledger, name=change.name, decided_at=change.decided_at, due_at=due_at, **own)
