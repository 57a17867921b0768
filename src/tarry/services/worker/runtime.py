"""A running worker: prefetchers poll, slots run handlers, the heartbeat prolongs leases."""

import asyncio
import contextvars
import logging
from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Protocol

from tarry.api._sync.queue import Queue
from tarry.api.queue import AsyncQueue
from tarry.api.queues import AsyncQueues
from tarry.core.errors import LockTimeout, StoreUnavailable, TarryError, UnknownQueue
from tarry.core.messages.outcomes import Settled
from tarry.core.monotonic import elapsed_s
from tarry.core.ports import AsyncStore
from tarry.services.loop import Loop, pause_s
from tarry.services.worker.acks import Acks
from tarry.services.worker.dispatch import STOPPED_CLEAN_UP_S, Dispatch
from tarry.services.worker.handlers import Source
from tarry.services.worker.heartbeat import Heartbeat
from tarry.services.worker.job import Job, JobPhase
from tarry.services.worker.prefetcher import Prefetcher, QueueLimits
from tarry.services.worker.registration import Registration
from tarry.services.worker.results import Hooks, Totals
from tarry.services.worker.threads import Threads

_log = logging.getLogger("tarry.worker")
_CHECK_EVERY = timedelta(milliseconds=500)
"""Interval between checks for paused queues: a pause takes effect within a second."""
_RELEASE_S = 1.0
"""How long a stopping worker waits for the database to release unstarted messages."""
_LOOPS_S = 0.5


class Blocking(Protocol):
    def queue(self, name: str) -> Queue[Any]: ...
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
        *,
        release: str | None = None,
    ) -> None:
        self.totals = Totals()
        self._app = app
        self._concurrency = concurrency
        self._blocking_app: Blocking | None = None
        self._threads = Threads(2 * concurrency)  # `on_dead` may run while its handler has not finished
        heartbeat = Heartbeat(elapsed_s)
        self._dispatch = Dispatch(heartbeat, hooks, self._threads, elapsed_s, self._blocking)
        self._limits: dict[str, QueueLimits] = {}
        self._prefetchers: deque[Prefetcher] = deque()
        """In the order in which they last started a message."""
        self._acks: dict[Prefetcher, Acks] = {}
        for source in sources:
            limits = self._limits.setdefault(source.queue, QueueLimits(source.queue, source.options, concurrency))
            queue = AsyncQueue(app.store, source.queue, source.codec, consumer=app.consumer)
            prefetcher = Prefetcher(source, limits, queue, elapsed_s, self._dispatch.interrupt)
            self._prefetchers.append(prefetcher)
            self._acks[prefetcher] = Acks(queue, partial(self._acked, prefetcher), partial(self._ack_alone, prefetcher))
        self._paces = [limits.pace for limits in self._limits.values() if limits.pace is not None]
        self._idle = len(self._prefetchers)
        """Number of prefetchers without a running handler."""
        self._jobs: set[Job] = set()
        """Unsettled jobs."""
        self._running = 0
        self._is_starting = False
        self._releases: set[asyncio.Task[None]] = set()
        self._registration = Registration(
            app.store,
            app.consumer,
            [*self._limits],
            concurrency,
            lambda: (self._running, heartbeat.prolonged, self._stopping),
            release,
        )
        pauses = Loop("pause check", self._check_once, every=_CHECK_EVERY)
        self._loops = [heartbeat.loop, pauses, self._registration.loop, *background]
        self._alarm: asyncio.TimerHandle | None = None
        self._stopping = False
        self._stop: asyncio.Event | None = None

    async def run(self, stop: asyncio.Event, grace_s: float, *, until_empty: bool = False) -> Totals:
        """Run until `stop` is set, or `until_empty` until nothing is due, then shut down."""
        self._stop = stop if until_empty else None
        for prefetcher in self._prefetchers:
            prefetcher.until_empty = until_empty
        self._context = contextvars.copy_context()
        self._registration.on_drain = stop.set
        loops = [asyncio.create_task(loop.run(), name=f"tarry-{loop.name}") for loop in self._loops]
        polls = [
            asyncio.create_task(prefetcher.run(self._slots, self._start), name="tarry-poll")
            for prefetcher in self._prefetchers
        ]
        try:
            await stop.wait()
        except asyncio.CancelledError:
            grace_s, self._dispatch.is_cancelled = 0.0, True
            raise
        finally:
            # Shielded: a cancelled worker still releases its messages.
            await asyncio.shield(self._shut_down(polls, loops, grace_s))
        return self.totals

    # Slots

    def _slots(self, prefetcher: Prefetcher) -> int:
        """Free slots of a prefetcher. Each prefetcher has a right to one; idle prefetchers have one reserved."""
        free = self._concurrency - self._running
        if prefetcher.running:
            return max(0, free - min(self._idle, self._concurrency - 1))
        return min(free, 1 + max(0, free - 1 - min(self._idle - 1, self._concurrency - 1)))

    def _start(self) -> None:
        """Start handlers, round-robin over the prefetchers, and let the prefetchers poll again."""
        self._is_starting = False
        now_s = elapsed_s()
        while not self._stopping and self._running < self._concurrency and self._start_next(now_s):
            pass
        if self._stop is not None and not self._jobs and all(each.is_done for each in self._prefetchers):
            self._stop.set()
        if not self._stopping:
            for prefetcher in self._prefetchers:
                prefetcher.wake()
            if self._paces:
                self._set_alarm(now_s)

    def _start_soon(self) -> None:
        """Call `_start` once for all handlers that finish in this iteration of the event loop."""
        if not self._is_starting:
            self._is_starting = True
            asyncio.get_running_loop().call_soon(self._start, context=self._context)

    def _set_alarm(self, now_s: float) -> None:
        """Schedule `_start` for the time when a rate limit allows the next message."""
        if self._alarm is not None:
            self._alarm.cancel()
        waits = [wait_s for pace in self._paces if (wait_s := pace.wait_s(now_s)) > 0]
        self._alarm = asyncio.get_running_loop().call_later(min(waits), self._start) if waits else None

    def _start_next(self, now_s: float) -> bool:
        for prefetcher in self._prefetchers:
            while prefetcher.startable(now_s) and self._slots(prefetcher) > 0:
                if (job := prefetcher.take(now_s)) is not None:
                    self._prefetchers.remove(prefetcher)
                    self._prefetchers.append(prefetcher)
                    self._begin(prefetcher, job, now_s)
                    return True
                self._release_later(prefetcher, prefetcher.unstarted(now_s))
        return False

    def _begin(self, prefetcher: Prefetcher, job: Job, now_s: float) -> None:
        self._idle -= not prefetcher.running
        self._running += 1
        prefetcher.running += 1
        prefetcher.limits.running += 1
        prefetcher.limits.unsettled += 1
        job.has_slot = True
        if prefetcher.limits.pace is not None:
            prefetcher.limits.pace.start(now_s)
        self._jobs.add(job)
        # Not in the caller's context, which may belong to another handler.
        name, job.context = f"tarry {prefetcher.queue.name} {job.delivery.key}", self._context.copy()
        job.task = asyncio.create_task(self._run(prefetcher, job), name=name, context=job.context)

    async def _run(self, prefetcher: Prefetcher, job: Job) -> None:
        """Call the handler and settle the message; after a failed batch, only settle it."""
        try:
            returned = None if job.is_repeated else await self._dispatch.call(job)
            if not job.is_repeated and self._dispatch.is_plain(job, returned):
                job.phase, job.is_in_batch = JobPhase.SETTLING, True
                prefetcher.took(elapsed_s() - job.started_s)  # without the ack, which may take longer
                self._acks[prefetcher].add(job, self._context)
                self._free_slot(prefetcher, job)
                self._start_soon()
                return
            await self._dispatch.settle(job, returned)
        except Exception:
            _log.exception("the worker itself failed with a message of %s", prefetcher.source)
        except asyncio.CancelledError:
            if self._stopping:
                raise
            _log.warning("a handler of %s left a cancellation behind", prefetcher.source)
        finally:
            if not job.is_in_batch:
                self._leave(prefetcher, job)
        prefetcher.took(job.took_s)
        self.totals.add([job.result])
        self.totals.dead += job.is_dead
        self._start()

    def _free_slot(self, prefetcher: Prefetcher, job: Job) -> None:
        job.has_slot = False
        self._running -= 1
        prefetcher.running -= 1
        prefetcher.limits.running -= 1
        self._idle += not prefetcher.running

    def _leave(self, prefetcher: Prefetcher, job: Job) -> None:
        if job.has_slot:
            self._free_slot(prefetcher, job)
        self._jobs.discard(job)
        prefetcher.limits.unsettled -= 1
        if self._stop is not None:
            for each in self._prefetchers:  # the handler may have offered messages
                each.is_empty = False

    def _acked(self, prefetcher: Prefetcher, batch: Sequence[tuple[Job, Settled]]) -> None:
        for job, settled in batch:
            self._dispatch.acked(job, settled)
            self._leave(prefetcher, job)
        self.totals.add([job.result for job, _ in batch])
        self._start()

    def _ack_alone(self, prefetcher: Prefetcher, job: Job) -> None:
        job.is_in_batch, job.is_repeated = False, True
        job.task = asyncio.create_task(self._run(prefetcher, job), name="tarry-ack", context=job.context)

    # Releasing

    async def _check_once(self) -> None:
        """Release messages of paused queues, and messages that have waited too long. Sends no query while nothing is held:
        a paused queue delivers nothing."""
        for prefetcher in self._prefetchers:
            self._release_later(prefetcher, prefetcher.unstarted(elapsed_s()))
        checked = {p.limits.queue: p.limits for p in self._prefetchers if p.held or p.limits.paused}
        if not checked:
            return
        for queue, limits in checked.items():  # individually: there may be thousands of queues
            try:
                limits.paused = (await self._app.queues.get(queue)).paused
            except UnknownQueue:  # it was deleted
                limits.paused = False
        for prefetcher in self._prefetchers:
            if prefetcher.limits.paused:
                self._release_later(prefetcher, prefetcher.unstarted())
        self._start()

    def _release_later(self, prefetcher: Prefetcher, unstarted: Sequence[Job]) -> None:
        if unstarted:
            release = asyncio.create_task(self._release(prefetcher.queue, unstarted), name="tarry-release")
            self._releases.add(release)
            release.add_done_callback(self._releases.discard)

    async def _release(self, queue: AsyncQueue[Any], unstarted: Sequence[Job]) -> None:
        self.totals.released += len(unstarted)
        failures = 0
        last_s = max(job.expires_s for job in unstarted)
        while elapsed_s() < last_s:
            try:
                await queue.leases.release([job.delivery.lease_id for job in unstarted])
                return
            except (StoreUnavailable, LockTimeout):
                failures += 1
                await asyncio.sleep(pause_s(failures))
            except TarryError as error:
                _log.warning("messages of %s come back when their leases run out: %s", queue.name, error)
                return

    # Shutdown

    async def _shut_down(
        self, polls: Sequence[asyncio.Task[None]], loops: Sequence[asyncio.Task[None]], grace_s: float
    ) -> None:
        """Shut down within the grace period plus about four seconds; leases not released by then expire."""
        self._stopping = True
        grace_until_s = elapsed_s() + grace_s
        if self._alarm is not None:
            self._alarm.cancel()
        for poll in polls:
            poll.cancel()
        await asyncio.wait(polls, timeout=_RELEASE_S)
        for prefetcher in self._prefetchers:
            self._release_later(prefetcher, prefetcher.unstarted())
        if (unsettled := [job for job in self._jobs if job.phase is not JobPhase.DONE]) and grace_s > 0:
            _log.info("stopping: %d still running, for at most %g s", len(unsettled), grace_s)
        while (left_s := grace_until_s - elapsed_s()) > 0:
            running = [job for job in self._jobs if job.phase is not JobPhase.DONE and not job.is_in_batch]
            if not (tasks := [*(job.settling_task for job in running), *self._flushers()]):
                break
            await asyncio.wait(tasks, timeout=left_s)  # messages of a failed batch are acked individually
        for job in list(self._jobs):
            job.stop()
        if rest := self._tasks():
            await asyncio.wait(rest, timeout=STOPPED_CLEAN_UP_S + _RELEASE_S)
        for loop in self._loops:
            loop.stop()
        for task in self._tasks():
            task.cancel()
        await asyncio.wait(loops, timeout=_LOOPS_S)
        for task in loops:
            task.cancel()
        await self._registration.leave()
        self._threads.close()
        if self._blocking_app is not None:
            await asyncio.to_thread(self._blocking_app.close)

    def _tasks(self) -> list[asyncio.Task[Any]]:
        """Tasks of all unfinished messages."""
        substitutes = [job.substitute for job in self._jobs if job.substitute is not None]
        return [*(job.task for job in self._jobs), *substitutes, *self._releases, *self._flushers()]

    def _flushers(self) -> list[asyncio.Task[None]]:
        return [acks.flusher for acks in self._acks.values() if acks.flusher is not None]

    def _blocking(self, queue: str) -> Queue[Any]:
        if self._blocking_app is None:
            self._blocking_app = self._app.blocking()
        return self._blocking_app.queue(queue)
