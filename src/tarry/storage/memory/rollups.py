"""`RollupsRole` in memory: computed from the journal when it is read."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from tarry.core.cron.model import DueCount, TickRecord
from tarry.core.dead_letters.redrive import RedriveOutcome
from tarry.core.durations import floored
from tarry.core.journal.events import Event, JournalLevel
from tarry.core.journal.events import EventKind as K
from tarry.core.messages.model import Counted
from tarry.core.rollups.compute import consumers_of, deaths_of, slices_of, times_of
from tarry.core.rollups.model import (
    DUE_COUNTED,
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
from tarry.storage.memory.cron import MemoryCron
from tarry.storage.memory.state import MemoryOperation, MemoryQueue, MemoryRole, MemoryState, locked


class MemoryRollups(MemoryRole):
    def __init__(self, state: MemoryState, cron: MemoryCron) -> None:
        super().__init__(state)
        self._cron = cron

    def roll_up(self) -> MemoryOperation[RolledUp]:
        return self._result(RolledUp(0, complete=True))

    @locked
    def slices(self, window: RollupWindow, *, sum_of: Sequence[str] | None = None) -> list[QueueSlice]:
        return slices_of(self._events(window), sum_of)

    @locked
    def times(
        self, measure: Measure, window: RollupWindow, *, sum_of: Sequence[str] | None = None, whole: bool = False
    ) -> list[TimeBucket]:
        return times_of(self._events(window), measure, sum_of, window.since if whole else None)

    @locked
    def consumers(self, window: RollupWindow) -> list[ConsumerSlice]:
        return consumers_of(self._events(window))

    def depths(self, window: RollupWindow, sum_of: Sequence[str]) -> MemoryOperation[list[DepthSlice]]:
        return self._result([])

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
        deaths = [(dead.fingerprint, dead.died_at, dead.consumer) for dead in letters[-limit:]]
        return deaths_of(deaths, width, since, until)

    @locked
    def redrive_outcome(self, job: int, *, limit: int = 10_000) -> RedriveOutcome:
        revived = {
            event.version
            for event, _ in self._state.events
            if event.kind in (K.REDRIVEN, K.OFFERED) and (event.detail or {}).get("job") == job
        }
        queues = self._state.queues.values()
        dead = sum(version in revived for queue in queues for version in queue.dead)
        live = sum(row.version in revived for queue in queues for row in queue.rows.values())
        return RedriveOutcome(Counted(dead), Counted(live))

    def forget(self, *, limit: int = 10_000) -> MemoryOperation[int]:
        return self._result(0)

    def _events(self, window: RollupWindow) -> Iterator[tuple[datetime, Event]]:
        for event, _ in self._state.events:
            start = floored(event.at, window.width)
            is_read = window.queue in (None, event.queue) and event.queue in self._state.queues
            if is_read and window.since <= start < window.until:
                yield start, event
