"""Buffers between sources and free handler slots, so that one source cannot occupy the slots of another."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from tarry.core.errors import StoreUnavailable
from tarry.core.rates import Pace
from tarry.handles.aio import AsyncQueue
from tarry.handles.delivery import AsyncDelivery
from tarry.services.handlers import Raw
from tarry.services.loop import pause_s
from tarry.services.sources import QueueOptions, Source

_log = logging.getLogger("tarry.worker")
_FRESH = 0.5
"""An unstarted message is released when less than this share of its lease is left: its handler needs time, too."""
_AHEAD = 0.25
"""No more messages are prefetched than are expected to start within this share of a lease."""
_LOWEST_EVERY = 10
"""One in this many consecutive full polls starts with the lowest priority, so that no priority starves."""


class Room:
    """The handler slots of one queue, shared by the sources of its types."""

    def __init__(self, queue: str, options: QueueOptions, concurrency: int) -> None:
        self.queue = queue
        self.limit = min(options.concurrency or concurrency, concurrency)
        self.prefetch = min(self.limit if options.prefetch is None else options.prefetch, 2 * self.limit)
        self.pace = None if options.rate is None else Pace(options.rate)
        self.running = 0
        self.paused = False


class Lane:
    """One source: polls while there are free slots, and holds messages that have not started yet."""

    def __init__(self, source: Source, room: Room, queue: AsyncQueue[Raw], timer: Callable[[], float]) -> None:
        self.source = source
        self.room = room
        self.queue = queue
        self.running = 0
        self.held: deque[AsyncDelivery[Raw]] = deque()
        self._timer = timer
        self._wanted = asyncio.Event()
        self._mean_s: float | None = None
        self._lease_s = 0.0
        self._full_takes = 0

    def want(self) -> None:
        """Signal that there may be free slots."""
        self._wanted.set()

    def startable(self, now_s: float) -> bool:
        pace = self.room.pace
        return bool(
            self.held
            and not self.room.paused
            and self.room.running < self.room.limit
            and (pace is None or pace.free(now_s) > 0)
        )

    def took(self, seconds: float) -> None:
        """Record the duration of a handler; the moving average limits how many messages are prefetched."""
        self._mean_s = seconds if self._mean_s is None else 0.8 * self._mean_s + 0.2 * seconds

    def missing(self, places: int) -> int:
        """How many messages to lease, given the number of free slots for this lane."""
        wanted = min(places, self.room.limit - self.room.running) + self._ahead() - len(self.held)
        if self.room.pace is not None:
            wanted = min(wanted, self.room.pace.free(self._timer()) - len(self.held))
        return 0 if self.room.paused else wanted

    def _ahead(self) -> int:
        if self._mean_s is None:
            return 0  # the duration of a handler is not known yet
        soon = self.room.limit * _AHEAD * self._lease_s / max(self._mean_s, 1e-6)
        return int(min(self.room.prefetch, soon))

    def stale(self, now_s: float) -> list[AsyncDelivery[Raw]]:
        """Remove and return messages that have waited too long."""
        old = [d for d in self.held if now_s - d.asked_s >= (1 - _FRESH) * d.lease_for.total_seconds()]
        for delivery in old:
            self.held.remove(delivery)
        return old

    def unstarted(self) -> list[AsyncDelivery[Raw]]:
        """Remove and return all messages that have not started."""
        rest = list(self.held)
        self.held.clear()
        return rest

    async def feed(self, places: Callable[[Lane], int], arrived: Callable[[], None]) -> None:
        """Poll until cancelled; a cancelled poll releases the messages in its response."""
        failures = 0
        while True:
            self._wanted.clear()
            if (n := self.missing(places(self))) <= 0:
                await self._wanted.wait()
                continue
            try:
                found = await self._poll(n)
                failures = 0
            except Exception as error:
                failures += 1
                if failures == 1:
                    _log.warning("queue %s cannot be polled: %s; trying again", self.source, error)
                if not isinstance(error, StoreUnavailable):
                    _log.debug("polling %s", self.source, exc_info=error)
                await asyncio.sleep(pause_s(failures))
                continue
            self.held.extend(found)
            if found:
                self._lease_s = found[-1].lease_for.total_seconds()
            arrived()

    async def _poll(self, n: int) -> list[AsyncDelivery[Any]]:
        lowest_first = self._full_takes >= _LOWEST_EVERY - 1
        found = await self.queue.poll_many(
            n,
            type=self.source.type,
            lease_for=self.source.options.lease_for,
            max_attempts=self.source.max_attempts,
            lowest_first=lowest_first,
        )
        self._full_takes = 0 if lowest_first or len(found) < n else self._full_takes + 1
        return found
