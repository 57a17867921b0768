"""A running worker: lanes fetch messages, slots run handlers, the heartbeat prolongs leases, shutdown is orderly."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Protocol

from tarry.core.errors import HeldUp, StoreUnavailable, TarryError
from tarry.core.ports import AsyncStore
from tarry.handles.aio import AsyncQueue
from tarry.handles.delivery import AsyncDelivery, Settling
from tarry.handles.elapsed import elapsed_s
from tarry.handles.queues import AsyncQueues
from tarry.services.dispatch import STOPPED_CLEAN_UP_S, Dispatch, Job
from tarry.services.handlers import RAW, Raw
from tarry.services.lanes import Lane, Room
from tarry.services.leases import IDLE_S, Leases
from tarry.services.loop import Loop, pause_s
from tarry.services.reports import Hooks, Tally
from tarry.services.sources import Source
from tarry.services.threads import Threads

_log = logging.getLogger("tarry.worker")
_LOOK_EVERY = timedelta(milliseconds=500)
"""Interval of checks for paused queues: a pause takes effect within a second."""


_GIVE_BACK_S = 1.0
"""How long a stopping worker waits for the database to take unstarted messages back."""
_LOOPS_S = 0.5


class Blocking(Protocol):
    def queue(self, name: str) -> Settling: ...
    def close(self) -> None: ...


class Connected(Protocol):
    """The part of an `AsyncApp` that a worker needs."""

    @property
    def store(self) -> AsyncStore: ...
    @property
    def queues(self) -> AsyncQueues: ...
    @property
    def consumer(self) -> str: ...
    def blocking(self) -> Blocking: ...


class Runtime:
    def __init__(
        self,
        app: Connected,
        sources: Sequence[Source],
        hooks: Hooks,
        concurrency: int,
        background: Sequence[Loop] = (),
        timer: Callable[[], float] = elapsed_s,
    ) -> None:
        self.tally = Tally()
        self._app = app
        self._concurrency = concurrency
        self._timer = timer
        self._blocking_app: Blocking | None = None
        self._threads = Threads(concurrency)
        self._leases = Leases(timer)
        self._dispatch = Dispatch(self._leases, hooks, self._threads, timer, self._blocking)
        rooms: dict[str, Room] = {}
        self._lanes: deque[Lane] = deque()
        for source in sources:
            room = rooms.setdefault(source.queue, Room(source.queue, source.options, concurrency))
            queue = AsyncQueue(app.store, source.queue, RAW, consumer=app.consumer)
            self._lanes.append(Lane(source, room, queue, timer))
        self._rooms = rooms
        self._jobs: dict[asyncio.Task[None], Job] = {}
        self._errands: set[asyncio.Task[None]] = set()
        self._beat = Loop("heart-beat", self._leases.run_once, every=timedelta(seconds=IDLE_S))
        self._look = Loop("look for pauses", self._look_once, every=_LOOK_EVERY)
        self._loops = [self._beat, self._look, *background]
        self._alarm: asyncio.TimerHandle | None = None
        self._stopping = False

    async def run(self, stop: asyncio.Event, grace_s: float) -> Tally:
        """Run until `stop` is set, then shut down."""
        loops = [asyncio.create_task(loop.run(), name=f"tarry-{loop.name}") for loop in self._loops]
        feeders = [asyncio.create_task(lane.feed(self._places, self._start), name="tarry-feed") for lane in self._lanes]
        try:
            await stop.wait()
        except asyncio.CancelledError:
            grace_s = 0.0
            raise
        finally:
            # Shielded from cancellation of this task: messages are released first.
            await asyncio.shield(self._shut_down(feeders, loops, grace_s))
        return self.tally

    # Slots

    def _places(self, lane: Lane) -> int:
        """Free slots for a lane. Every lane is entitled to one; beyond that, one is reserved for each idle lane."""
        free = self._concurrency - len(self._jobs)
        idle = sum(not other.running for other in self._lanes if other is not lane)
        reserved = min(idle, self._concurrency - 1)
        return max(0, free - reserved) if lane.running else min(free, 1 + max(0, free - 1 - reserved))

    def _start(self) -> None:
        """Start handlers, lanes in turn (round robin), and let the lanes fetch more."""
        now_s = self._timer()
        while not self._stopping and (lane := self._next(now_s)) is not None:
            self._lanes.remove(lane)
            self._lanes.append(lane)
            self._begin(lane, lane.held.popleft(), now_s)
        if not self._stopping:
            for lane in self._lanes:
                lane.want()
            self._set_alarm(now_s)

    def _set_alarm(self, now_s: float) -> None:
        """Schedule `_start` for the moment at which a rate limit allows one more."""
        if self._alarm is not None:
            self._alarm.cancel()
        paces = [room.pace for room in self._rooms.values() if room.pace is not None]
        waits = [wait_s for pace in paces if (wait_s := pace.wait_s(now_s)) > 0]
        self._alarm = asyncio.get_running_loop().call_later(min(waits), self._start) if waits else None

    def _next(self, now_s: float) -> Lane | None:
        for lane in self._lanes:
            self._give_back(lane, lane.stale(now_s))
            if lane.startable(now_s) and self._places(lane) > 0:
                return lane
        return None

    def _begin(self, lane: Lane, delivery: AsyncDelivery[Raw], now_s: float) -> None:
        lane.running += 1
        lane.room.running += 1
        if lane.room.pace is not None:
            lane.room.pace.start(now_s)
        job = Job(lane.queue, delivery, lane.source.handler_of(delivery.type))
        task = asyncio.create_task(self._work(lane, job), name=f"tarry {lane.queue.name} {delivery.key}")
        self._jobs[task] = job
        task.add_done_callback(lambda task: self._end(lane, task))
        if job.held.next_s < self._leases.next_look_s:
            self._beat.wake()

    async def _work(self, lane: Lane, job: Job) -> None:
        handled = await self._dispatch.handle(job)
        lane.took(handled.took_s)
        self.tally.endings[handled.ending] += 1

    def _end(self, lane: Lane, task: asyncio.Task[None]) -> None:
        del self._jobs[task]
        lane.running -= 1
        lane.room.running -= 1
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("the worker itself failed with a message of %s", lane.source, exc_info=error)
        self._start()

    # Releasing

    async def _look_once(self) -> None:
        """Handle pauses, and messages that have waited too long. No query while nothing is held: a paused queue
        delivers nothing.
        """
        for lane in self._lanes:
            self._give_back(lane, lane.stale(self._timer()))
        if not any(lane.held or lane.room.paused for lane in self._lanes):
            return
        paused = {info.name for info in await self._app.queues.list() if info.paused}
        for room in self._rooms.values():
            room.paused = room.queue in paused
        for lane in self._lanes:
            if lane.room.paused:
                self._give_back(lane, lane.unstarted())
        self._start()

    def _give_back(self, lane: Lane, unstarted: Sequence[AsyncDelivery[Raw]]) -> None:
        if unstarted:
            errand = asyncio.create_task(self._release(lane.queue, unstarted), name="tarry-release")
            self._errands.add(errand)
            errand.add_done_callback(self._errands.discard)

    async def _release(self, queue: AsyncQueue[Raw], unstarted: Sequence[AsyncDelivery[Raw]]) -> None:
        self.tally.given_back += len(unstarted)
        failures = 0
        last_s = max(delivery.asked_s + delivery.lease_for.total_seconds() for delivery in unstarted)
        while self._timer() < last_s:
            try:
                await queue.release_many([delivery.hold for delivery in unstarted])
            except (StoreUnavailable, HeldUp):
                failures += 1
                await asyncio.sleep(pause_s(failures))
            except TarryError as error:
                _log.warning("messages of %s come back when their leases run out: %s", queue.name, error)
                return
            else:
                return

    # Shutdown

    async def _shut_down(
        self, feeders: Sequence[asyncio.Task[None]], loops: Sequence[asyncio.Task[None]], grace_s: float
    ) -> None:
        """Within the grace and about four seconds: what the database does not answer by then is left to run out."""
        self._stopping = True
        grace_until_s = self._timer() + grace_s
        if self._alarm is not None:
            self._alarm.cancel()
        for feeder in feeders:
            feeder.cancel()
        await asyncio.wait(feeders, timeout=_GIVE_BACK_S)
        for lane in self._lanes:
            self._give_back(lane, lane.unstarted())
        if (unsettled := [task for task, job in self._jobs.items() if not job.settled]) and grace_s > 0:
            _log.info("stopping: %d still running, for at most %g s", len(unsettled), grace_s)
            await asyncio.wait(unsettled, timeout=max(0.0, grace_until_s - self._timer()))
        for task, job in list(self._jobs.items()):
            job.stop()
            if job.settled:
                task.cancel()  # it only waits for a thread that ignores cancellation
        if rest := [*self._jobs, *self._errands]:
            await asyncio.wait(rest, timeout=STOPPED_CLEAN_UP_S + _GIVE_BACK_S)
        for loop in self._loops:
            loop.stop()
        for task in (*self._jobs, *self._errands):
            task.cancel()
        await asyncio.wait(loops, timeout=_LOOPS_S)
        for task in loops:
            task.cancel()
        self._threads.close()
        if self._blocking_app is not None:
            await asyncio.to_thread(self._blocking_app.close)

    def _blocking(self, queue: str) -> Settling:
        if self._blocking_app is None:
            self._blocking_app = self._app.blocking()
        return self._blocking_app.queue(queue)
