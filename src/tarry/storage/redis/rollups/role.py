"""`RollupsRole` on Redis: computed from the bounded journals when it is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from tarry.core.cron.model import DueCount, TickRecord
from tarry.core.dead_letters.redrive import RedriveOutcome
from tarry.core.durations import floored
from tarry.core.errors import UnknownQueue
from tarry.core.journal.events import Event, EventKind, JournalLevel
from tarry.core.messages.model import Counted
from tarry.core.rollups.compute import Timed, consumers_of, deaths_of, slices_of, times_of
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
    due_share,
)
from tarry.storage.redis.cron.role import RedisCron
from tarry.storage.redis.dead_letters.role import RedisDeadLetters
from tarry.storage.redis.journal.role import RedisJournal
from tarry.storage.redis.operation import Op, RedisOperation, RedisRole, RoleContext, duration, micros, operation
from tarry.storage.redis.queues.role import RedisQueues

_AT_ONCE = 1_000


class RedisRollups(RedisRole):
    def __init__(
        self,
        context: RoleContext,
        queues: RedisQueues,
        journal: RedisJournal,
        letters: RedisDeadLetters,
        cron: RedisCron,
    ) -> None:
        super().__init__(context)
        self._queues, self._journal, self._letters, self._cron = queues, journal, letters, cron

    def roll_up(self) -> RedisOperation[RolledUp]:
        return self._result(RolledUp(0, complete=True))

    @operation
    def slices(self, window: RollupWindow, *, sum_of: Sequence[str] | None = None) -> Op[list[QueueSlice]]:
        return slices_of((yield from self._events(window)), sum_of)

    @operation
    def times(
        self, measure: Measure, window: RollupWindow, *, sum_of: Sequence[str] | None = None, whole: bool = False
    ) -> Op[list[TimeBucket]]:
        events = yield from self._events(window)
        return times_of(events, measure, sum_of, window.since if whole else None)

    @operation
    def consumers(self, window: RollupWindow) -> Op[list[ConsumerSlice]]:
        return consumers_of((yield from self._events(window)))

    def depths(self, window: RollupWindow, sum_of: Sequence[str]) -> RedisOperation[list[DepthSlice]]:
        return self._result([])

    @operation
    def standings(self, *, limit: int = 1_000, queue: str | None = None) -> Op[list[Standing]]:
        rows: list[Standing] = []
        infos = yield from self._queues.infos().start()
        for info in (info for info in infos if queue in (None, info.name)):
            try:
                counts = yield from self._queues.counts(info.name, limit=limit).start()
                whole = yield from self._queues.counts(info.name, limit=2**31).start()
                waiting = yield from self._in_queue(info.name, "rollups/waiting")
            except UnknownQueue:  # deleted meanwhile
                continue
            live = dead = None
            if info.settings.journal is not JournalLevel.OFF:
                live, dead = whole.delayed.n + whole.ready.n + whole.leased.n, whole.dead.n
            row = Standing(queue=info.name, counts=counts, waiting=waiting, live_total=live, dead_total=dead)
            rows.append(row)
        return rows

    @operation
    def due_ahead(
        self, since: datetime, until: datetime, every: timedelta, *, queue: str | None = None, limit: int = DUE_COUNTED
    ) -> Op[list[DueCount]]:
        names = [info.name for info in (yield from self._queues.infos().start()) if queue in (None, info.name)]
        return (yield from self.due_counts(names, since, until, every, due_share(len(names), limit)))

    def due_counts(
        self, names: Sequence[str], since: datetime, until: datetime, every: timedelta, limit: int
    ) -> Op[list[DueCount]]:
        counts: list[DueCount] = []
        for name in names:
            try:
                reply = yield from self._in_queue(
                    name,
                    "rollups/due",
                    since=micros(since),
                    til=micros(until),
                    every=duration(every),
                    limit=limit,
                )
            except UnknownQueue:
                continue
            rows = zip(reply[::3], reply[1::3], reply[2::3], strict=True)
            counts += [DueCount(name, since + bucket * every, n, retries) for bucket, n, retries in rows]
        return sorted(counts, key=lambda count: (count.start_at, count.queue))

    @operation
    def deaths(
        self, queue: str, width: timedelta, since: datetime, until: datetime, *, limit: int = 5_000
    ) -> Op[list[DeathSlice]]:
        try:
            letters = yield from self._letters.list(queue, limit=limit).start()
        except UnknownQueue:
            return []
        deaths = [(letter.fingerprint or "", letter.died_at, letter.consumer) for letter in letters]
        return deaths_of(deaths, width, since, until)

    @operation
    def redrive_outcome(self, job: int, *, limit: int = 10_000) -> Op[RedriveOutcome]:
        stored = yield from self._letters.redrive_job(job).start()
        if stored is None or stored.gone_queue is not None:
            return RedriveOutcome(Counted(0), Counted(0))
        queue = stored.target or stored.queue
        kind = EventKind.REDRIVEN if stored.target is None else EventKind.OFFERED
        redriven = (event for event in (yield from self._recent([queue])) if event.kind is kind)
        revived = [event for event in redriven if (event.detail or {}).get("job") == job]
        chosen = revived[:limit]
        dead, live = yield from self._in_queue(
            queue,
            "rollups/revived",
            versions=[str(event.version) for event in chosen],
            keys=[event.key for event in chosen],
        )
        capped = len(revived) > limit
        return RedriveOutcome(Counted(dead, capped), Counted(live, capped))

    @operation
    def recent_ticks(self, schedules: Sequence[str], until: datetime, *, limit: int) -> Op[list[TickRecord]]:
        records: list[TickRecord] = []
        for name in sorted({*schedules}):
            records += yield from self._cron.ticks(name, until=until, limit=limit).start()
        return records

    def forget(self, *, limit: int = 10_000) -> RedisOperation[int]:
        return self._result(0)

    def _events(self, window: RollupWindow) -> Op[Timed]:
        infos = yield from self._queues.infos().start()
        events = yield from self._recent([info.name for info in infos if window.queue in (None, info.name)])
        timed = ((floored(event.at, window.width), event) for event in events)
        return [(start, event) for start, event in timed if window.since <= start < window.until]

    def _recent(self, names: Sequence[str]) -> Op[list[Event]]:
        """What the journals of these queues still have, oldest first."""
        events: list[Event] = []
        for name in names:
            id, before = (yield from self._journal.id_of(name)), None
            while id is not None:
                read, before = yield from self._journal.before(id, before, _AT_ONCE)
                events += [replace(event, queue=name) for event in read]
                if before is None:
                    break
        return sorted(events, key=lambda event: event.id)
