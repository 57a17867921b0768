"""`RollupsRole` in memory: computed from the journal when it is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from tarry.core.cron.model import DueCount, TickRecord
from tarry.core.dead_letters.redrive import RedriveOutcome
from tarry.core.journal.events import Event, JournalLevel
from tarry.core.journal.events import EventKind as K
from tarry.core.journal.replay import BEGINS, ENDS
from tarry.core.messages.model import Counted
from tarry.core.rollups.model import (
    DUE_COUNTED,
    ConsumerSlice,
    DeathSlice,
    Measure,
    QueueSlice,
    RolledUp,
    Standing,
    TimeBucket,
    bucket_of,
    measured,
)
from tarry.storage.memory.cron import MemoryCron
from tarry.storage.memory.state import MemoryOperation, MemoryQueue, MemoryRole, MemoryState, locked

_COUNTED = {
    K.OFFERED: "offered", K.LEASED: "leased", K.ACKED: "acked", K.NACKED: "nacked", K.EXPIRED: "expired",
    K.BURIED: "buried", K.REDRIVEN: "redriven", K.DROPPED: "removed", K.CRON_REPLACED: "removed",
}  # fmt: skip
_OF_CONSUMERS = frozenset({K.LEASED, K.TOUCHED, K.ACKED, K.NACKED, K.EXPIRED, K.RELEASED, K.BURIED})


class MemoryRollups(MemoryRole):
    def __init__(self, state: MemoryState, cron: MemoryCron) -> None:
        super().__init__(state)
        self._cron = cron

    @locked
    def roll_up(self) -> RolledUp:
        return RolledUp(0, complete=True)

    @locked
    def slices(
        self, width: timedelta, since: datetime, until: datetime, *, queue: str | None = None
    ) -> list[QueueSlice]:
        totals: dict[tuple[datetime, str], Counter[str]] = {}
        for start, event in self._events(width, since, until, queue):
            total = totals.setdefault((start, event.queue), Counter())
            if event.kind in _COUNTED:
                total[_COUNTED[event.kind]] += 1
            total["live_delta"] += (event.kind in BEGINS) - (event.kind in ENDS)
            total["dead_delta"] += (event.kind is K.BURIED) - (event.kind in (K.REDRIVEN, K.DISCARDED))
        return [QueueSlice(name, start, **total) for (start, name), total in sorted(totals.items())]

    @locked
    def times(
        self, measure: Measure, width: timedelta, since: datetime, until: datetime, *, queue: str | None = None
    ) -> list[TimeBucket]:
        totals: Counter[tuple[datetime, str, int]] = Counter()
        for start, event in self._events(width, since, until, queue):
            took = measured(event)
            if took is not None and took[0] is measure:
                totals[start, event.queue, bucket_of(took[1])] += 1
        return [TimeBucket(name, start, bucket, n) for (start, name, bucket), n in sorted(totals.items())]

    @locked
    def consumers(
        self, width: timedelta, since: datetime, until: datetime, *, queue: str | None = None
    ) -> list[ConsumerSlice]:
        totals: dict[tuple[datetime, str, str], tuple[Counter[K], float, datetime]] = {}
        for start, event in self._events(width, since, until, queue):
            if event.consumer is None or event.kind not in _OF_CONSUMERS:
                continue
            took, group = measured(event), (start, event.queue, event.consumer)
            kinds, work_s, last_at = totals.get(group, (Counter[K](), 0.0, event.at))
            kinds[event.kind] += 1
            work_s += took[1] if took is not None and took[0] is Measure.WORK else 0.0
            totals[group] = (kinds, work_s, max(last_at, event.at))
        return [
            ConsumerSlice(name, consumer, start, **_counts(kinds), work_s=work_s, last_at=last_at)
            for (start, name, consumer), (kinds, work_s, last_at) in sorted(totals.items())
        ]

    @locked
    def standings(self, *, limit: int = 1_000, queue: str | None = None) -> list[Standing]:
        def standing(of: MemoryQueue) -> Standing:
            is_off = of.settings.journal is JournalLevel.OFF
            live, dead = (None, None) if is_off else (len(of.rows), len(of.dead))
            counts = of.counts(limit, self._now)
            return Standing(queue=of.name, counts=counts, waiting=0, live_total=live, dead_total=dead)

        return [standing(of) for name, of in sorted(self._state.queues.items()) if queue in (None, name)]

    def due_ahead(
        self, since: datetime, until: datetime, every: timedelta, *, queue: str | None = None, limit: int = DUE_COUNTED
    ) -> MemoryOperation[list[DueCount]]:
        counts = self._cron.due_counts(since, until, every)
        return MemoryOperation(lambda: [count for count in counts.call() if queue in (None, count.queue)])

    def recent_ticks(
        self, schedules: Sequence[str], until: datetime, *, limit: int
    ) -> MemoryOperation[list[TickRecord]]:
        def read() -> list[TickRecord]:
            existing = [name for name in sorted(schedules) if self._cron.schedules(name).call()]
            return [record for name in existing for record in self._cron.ticks(name, until=until, limit=limit).call()]

        return MemoryOperation(read)

    @locked
    def deaths(
        self, queue: str, width: timedelta, since: datetime, until: datetime, *, limit: int = 5_000
    ) -> list[DeathSlice]:
        own = self._state.queues.get(queue)
        letters = [] if own is None else sorted(own.dead.values(), key=lambda dead: dead.age_order)
        slices: dict[tuple[str, datetime | None], list[str | None]] = {}
        for dead in letters[-limit:]:
            inside = since <= dead.died_at < until
            start = since + (dead.died_at - since) // width * width if inside else None
            slices.setdefault((dead.fingerprint, start), []).append(dead.consumer)
        return [
            DeathSlice(fingerprint, start, len(consumers), tuple(sorted({name for name in consumers if name})))
            for (fingerprint, start), consumers in slices.items()
        ]

    @locked
    def redrive_outcome(self, job: int, *, limit: int = 10_000) -> RedriveOutcome:
        revived = {
            event.version
            for event, _ in self._state.log.events
            if event.kind in (K.REDRIVEN, K.OFFERED) and (event.detail or {}).get("job") == job
        }
        queues = self._state.queues.values()
        dead = sum(version in revived for queue in queues for version in queue.dead)
        live = sum(row.version in revived for queue in queues for row in queue.rows.values())
        return RedriveOutcome(Counted(dead), Counted(live))

    @locked
    def forget(self, *, limit: int = 10_000) -> int:
        return 0

    def _events(
        self, width: timedelta, since: datetime, until: datetime, queue: str | None
    ) -> Iterator[tuple[datetime, Event]]:
        seconds = width.total_seconds()
        for event, _ in self._state.log.events:
            start = event.at - timedelta(seconds=event.at.timestamp() % seconds)
            if since <= start < until and queue in (None, event.queue) and event.queue in self._state.queues:
                yield start, event


def _counts(kinds: Counter[K]) -> dict[str, int]:
    return {kind.value: kinds[kind] for kind in (K.LEASED, K.ACKED, K.NACKED, K.EXPIRED)}
