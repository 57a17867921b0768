"""Buffers between sources and handler slots; no source can occupy the slots of another."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from tarry.api.queue import AsyncQueue
from tarry.core.errors import StoreUnavailable
from tarry.core.rates import Pace
from tarry.services.loop import pause_s
from tarry.services.worker.handlers import QueueOptions, Source
from tarry.services.worker.job import Job

_log = logging.getLogger("tarry.worker")
_FRESH = 0.5
"""An unstarted message is released when less than this share of its lease is left: its handler needs time."""
_AHEAD = 0.25
"""Prefetched messages are expected to start within this share of a lease."""
_LOWEST_EVERY = 10
"""Of this many consecutive full polls, one starts with the lowest priority, so no priority starves."""
_QUICK_MOST = 50
_QUICK_S = 0.05
"""Without a fixed `prefetch`, the worker leases ahead and acks together the number of messages its slots handle in this time,
if that is more than its slots, as `consume()` does. Messages that wait twice as long are released to other consumers."""


class QueueLimits:
    """The handler slots of one queue, shared by the sources of its types."""

    def __init__(self, queue: str, options: QueueOptions, concurrency: int) -> None:
        self.queue = queue
        self.limit = min(options.concurrency or concurrency, concurrency)
        self.is_adaptive = options.prefetch is None
        self.prefetch = min(self.limit if options.prefetch is None else options.prefetch, 2 * self.limit)
        self.unacked = self.limit
        """Maximum number of messages waiting for their acks."""
        self.pace = None if options.rate is None else Pace(options.rate)
        self.running = 0
        self.unsettled = 0
        """Messages whose handlers run, or have finished and are being acked."""
        self.paused = False

    @property
    def free(self) -> int:
        """Free slots. A finished handler frees its slot before its message is acked, for the next handler."""
        return min(self.limit - self.running, self.limit + self.unacked - self.unsettled)


@dataclass(eq=False, slots=True)
class Prefetcher:
    """Polls one source while slots are free, and holds messages that have not started."""

    source: Source
    limits: QueueLimits
    queue: AsyncQueue[object]
    timer: Callable[[], float]
    interrupt: Callable[[Job], None]
    """See `Job`."""
    running: int = 0
    held: deque[Job] = field(default_factory=deque[Job])
    until_empty: bool = False
    is_empty: bool = False
    """Do not wait for messages; nothing was due, and no handler has finished since then."""
    lease_s: float = 0.0
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _low: int = 0
    """The buffer is refilled when at most this many messages are left."""
    _mean_s: float | None = None
    _full_polls: int = 0

    @property
    def is_done(self) -> bool:
        return self.is_empty and not self.held

    def wake(self) -> None:
        """Poll again if the buffer is low: a slot may be free."""
        if len(self.held) <= self._low:
            self._wake.set()

    def startable(self, now_s: float) -> bool:
        limits = self.limits
        return bool(
            self.held and not limits.paused and limits.free > 0 and (limits.pace is None or limits.pace.free(now_s) > 0)
        )

    def took(self, seconds: float) -> None:
        """Record a handler's duration; the moving average limits the prefetch."""
        self._mean_s = seconds if self._mean_s is None else 0.8 * self._mean_s + 0.2 * seconds

    def missing(self, slots: int) -> int:
        """Number of messages to lease, given the free slots for this source."""
        free, ahead, held = min(slots, self.limits.free), self._ahead(), len(self.held)
        missing = free + ahead - held
        if self.limits.pace is not None:
            missing = min(missing, self.limits.pace.free(self.timer()) - held)
        self._low = ahead // 2
        return 0 if self.limits.paused or self._low < held >= free else missing

    def _ahead(self) -> int:
        if self._mean_s is None:
            return 0  # no handler has finished yet
        limits, each_s = self.limits, max(self._mean_s, 1e-6) / self.limits.limit
        quick = min(_QUICK_MOST, int(_QUICK_S / each_s)) if limits.is_adaptive else 0
        limits.unacked = max(limits.limit, quick)
        return min(max(limits.prefetch, quick), int(_AHEAD * self.lease_s / each_s))

    def take(self, now_s: float) -> Job | None:
        """The next message; None if it has waited too long and `unstarted` is to remove it."""
        return None if _is_stale(self.held[0], now_s) else self.held.popleft()

    def unstarted(self, now_s: float | None = None) -> list[Job]:
        """Remove and return messages that have not started: all, or those that have waited too long at `now_s`."""
        kept: deque[Job] = deque()
        jobs: list[Job] = []
        for job in self.held:
            (kept if now_s is not None and self._may_wait(job, len(kept), now_s) else jobs).append(job)
        self.held = kept
        if jobs and now_s is not None:
            # Handlers are slower than assumed. With the old average the same messages would be leased again.
            self._mean_s = max(self._mean_s or 0.0, now_s - _sent_s(jobs[0]))
        return jobs

    def _may_wait(self, job: Job, before: int, now_s: float) -> bool:
        is_early = before < self.limits.prefetch or now_s < _sent_s(job) + 2 * _QUICK_S
        return is_early and not _is_stale(job, now_s)

    async def run(self, slots: Callable[[Prefetcher], int], arrived: Callable[[], None]) -> None:
        """Poll until cancelled; a cancelled poll releases the messages of its response."""
        failures = 0
        while True:
            self._wake.clear()
            if self.is_empty or (n := self.missing(slots(self))) <= 0:
                await self._wake.wait()
                continue
            try:
                jobs = await self._poll(n)
                failures = 0
            except Exception as error:
                failures += 1
                if failures == 1:
                    _log.warning("queue %s cannot be polled: %s; trying again", self.source, error)
                if not isinstance(error, StoreUnavailable):
                    _log.debug("polling %s", self.source, exc_info=error)
                await asyncio.sleep(pause_s(failures))
                continue
            self.held.extend(jobs)
            self.is_empty = self.until_empty and not jobs
            if jobs:
                self.lease_s = jobs[-1].span_s
            arrived()

    async def _poll(self, n: int) -> list[Job]:
        lowest_first = self._full_polls >= _LOWEST_EVERY - 1
        poll = self.queue.try_poll_many if self.until_empty else self.queue.poll_many
        deliveries = await poll(
            n,
            type=self.source.type,
            lease_for=self.source.options.lease_for,
            max_attempts=self.source.max_attempts,
            lowest_first=lowest_first,
        )
        self._full_polls = 0 if lowest_first or len(deliveries) < n else self._full_polls + 1
        queue, handler_of, interrupt = self.queue, self.source.handler_of, self.interrupt
        return [Job(queue, delivery, handler_of(delivery.type), interrupt) for delivery in deliveries]


def _sent_s(job: Job) -> float:
    """When its poll was sent; leases are prolonged only after the handler starts."""
    return job.expires_s - job.span_s


def _is_stale(job: Job, now_s: float) -> bool:
    return now_s >= job.expires_s - _FRESH * job.span_s
