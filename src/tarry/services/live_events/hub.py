"""Fan-out of the growing journal: one reader tails it and distributes events to many subscribers.

Nothing is read while there are no subscribers. A subscriber that does not keep up is disconnected, so that it costs no
more than its buffer; it may resume from its last position and catch up from the journal.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from tarry.core.events import Event
from tarry.core.following import AsyncFollowing, EventPage, Gap
from tarry.services.loop import Loop
from tarry.services.streams import Ending, Form, Stream

_log = logging.getLogger("tarry")

PAGE = 500
REPLAYS = 4
"""Concurrent page reads for single subscribers: when all of them reconnect at once, other queries need the database,
too.
"""
TAKEN_WITHIN_S = 0.5
"""How long subscribers have to consume one page before the next one is added."""
NOT_AGAIN_S = 30.0
REPLAYED_BYTES = 256 * 1024
"""Memory per subscriber that catches up, give or take one event."""
PAGES_AT_ONCE = 4
"""Pages per cycle, before access is checked and new subscribers join: reading a fast-growing journal may never end."""


@dataclass(frozen=True, slots=True)
class Replayed:
    text: bytes
    position: str
    """Where to resume."""
    complete: bool
    is_gap: bool = False


class Live:
    """The distributor. `form` serializes events, once for all subscribers of that form. `run_once` reads new events."""

    def __init__(
        self,
        journal: AsyncFollowing,
        *,
        form: Form,
        buffer: int,
        most: int,
        quick: timedelta = timedelta(milliseconds=50),
        calm: timedelta = timedelta(milliseconds=250),
        check_every: timedelta = timedelta(seconds=2),
    ) -> None:
        """`buffer`: events that a subscriber may lag behind; `most`: events that are read at once, or replayed. Polls
        again after `quick` while events arrive, and progressively less often, up to `calm`, when idle.
        """
        self._journal = journal
        self._form = form
        self._buffer = buffer
        self._page = min(PAGE, buffer)
        self._most = most
        self._quick_s, self._calm_s = quick.total_seconds(), calm.total_seconds()
        self._check_every_s = check_every.total_seconds()
        self._streams: set[Stream] = set()
        self._reading = asyncio.Lock()
        self._replaying = asyncio.Semaphore(REPLAYS)
        self._taken = asyncio.Event()
        self._position: str | None = None
        self._read_at = self._checked_at = self._rest_s = 0.0
        self._loop: Loop | None = None
        self._task: asyncio.Task[None] | None = None
        self.is_stopping = False
        self.cut_off = 0

    @property
    def open(self) -> int:
        return len(self._streams)

    @asynccontextmanager
    async def stream(
        self, wants: Callable[[Event], bool], *, allowed: Callable[[], Awaitable[bool]], form: Form | None = None
    ) -> AsyncGenerator[Stream]:
        """A subscriber, which gets nothing before it joins. The first one starts the loop, the last one ends it."""
        visitor = Stream(wants, form or self._form, allowed=allowed, most=self._buffer, on_taken=self._taken.set)
        self._streams.add(visitor)
        if self.is_stopping:
            visitor.end(Ending.STOPPING)
        elif self._loop is None:
            self._position = None  # start at the current position: events without subscribers are not replayed
            self._loop = Loop("live events", self.run_once, every=timedelta(seconds=self._calm_s))
            self._task = asyncio.create_task(self._loop.run(), name="tarry-live")
        try:
            yield visitor
        finally:
            visitor.end(Ending.GONE)
            self.cut_off += visitor.ending is Ending.SLOW
            self._streams.discard(visitor)
            if not self._streams:
                await self._rest()

    async def join(self, stream: Stream) -> str:
        """Start feeding a stream; returns its start position. Everything distributed before lies before it."""
        asked_at = time.monotonic()
        async with self._reading:
            if self._position is None:
                started_at = time.monotonic()
                self._position, self._read_at = (await self._journal.follow(None)).position, started_at
            elif self._read_at < asked_at:
                # So that a subscriber with a position from here or from another broker is not ahead of this reader.
                # Concurrent joins share one read.
                started_at = time.monotonic()
                if not await self._read(started_at):
                    # Reading may never catch up: read only up to the current head.
                    head, started_at = (await self._journal.follow(None)).position, time.monotonic()
                    while not await self._read_page(until=head):
                        pass
            stream.position = self._position
            return self._position

    async def replay(self, stream: Stream, after: str, *, until: str | None = None) -> AsyncGenerator[Replayed]:
        """Events after a position, read for one subscriber, in pages that it consumes at its own speed."""
        limit = self._page
        while True:
            async with self._replaying:
                page, limit = await self._replayed(stream, after, until, limit)
            yield page
            if page.complete:
                return
            after = page.position

    async def _replayed(self, stream: Stream, after: str, until: str | None, limit: int) -> tuple[Replayed, int]:
        """Also returns the next page size. Only a limited amount of text outlives this call: many may read slowly at
        once.
        """
        page = await self._journal.follow(after, until=until, limit=limit, most=self._most)
        if page.gap is not None:
            told = stream.form.tell(page.position, page.gap)
            return Replayed(told, page.position, complete=page.complete, is_gap=True), limit
        shown: list[bytes] = []
        size = 0
        for n, (position, event) in enumerate(page.events, 1):
            if stream.wants(event):
                shown.append(_shown(stream.form, position, event)[1])
                size += len(shown[-1])
                if size >= REPLAYED_BYTES:
                    return Replayed(b"".join(shown), position, complete=False), n
        return Replayed(b"".join(shown), page.position, complete=page.complete), min(self._page, limit * 2)

    def stop(self) -> None:
        """Stop permanently: current and later subscribers get the ending STOPPING."""
        self.is_stopping = True
        for stream in list(self._streams):
            stream.end(Ending.STOPPING)

    async def run_once(self) -> float:
        async with self._reading:
            started_at = time.monotonic()
            before, is_done = self._position, await self._read(started_at)
            found, took_s = self._position != before, time.monotonic() - started_at
        if started_at >= self._checked_at + self._check_every_s:
            self._checked_at = started_at
            for stream in list(self._streams):
                if not await stream.is_allowed():
                    stream.end(Ending.REFUSED)
        if not is_done:
            return 0.0
        # The longer the distribution takes, the larger the next batch: other tasks need the processor, too.
        self._rest_s = max(self._quick_s, took_s) if found else min(self._calm_s, max(self._quick_s, self._rest_s * 2))
        return self._rest_s

    async def _read(self, started_at: float) -> bool:
        """Distribute new events. True: caught up. Under the lock, so that no subscriber joins in the middle of a
        window.
        """
        for _ in range(PAGES_AT_ONCE):
            if self._position is None:
                return True
            if await self._read_page():
                self._read_at = started_at
                return True
        return False

    async def _read_page(self, *, until: str | None = None) -> bool:
        """True: caught up."""
        page = await self._journal.follow(self._position, until=until, limit=self._page, most=self._most)
        shown = {form: _written(form, page) for form in {stream.form for stream in self._streams}}
        for stream in list(self._streams):
            try:
                stream.put(shown[stream.form], page.position)
            except Exception:
                _log.exception("a live stream failed, and is ended")
                stream.end(Ending.FAILED)  # the client resumes from the last position it has seen
        self._position = page.position  # only now: an event that fails before this would be lost for all
        await self._until_taken()
        return page.complete

    async def _until_taken(self) -> None:
        """Wait for subscribers to consume the page: otherwise a burst would disconnect good readers that had no turn to
        run. Readers that did not keep up are not waited for again: together they would delay all others.
        """
        try:
            async with asyncio.timeout(TAKEN_WITHIN_S):
                while any(stream.is_waited_for for stream in self._streams):
                    self._taken.clear()
                    await self._taken.wait()
        except TimeoutError:
            for stream in self._streams:
                if stream.is_waited_for:
                    stream.waited_for_from = time.monotonic() + NOT_AGAIN_S

    async def _rest(self) -> None:
        loop, task, self._loop, self._task = self._loop, self._task, None, None
        if loop is not None and task is not None:
            loop.stop()
            await asyncio.wait([task], timeout=TAKEN_WITHIN_S)
            task.cancel()  # it may be waiting for an unavailable database


def _written(form: Form, page: EventPage) -> list[tuple[Event | None, bytes]]:
    written = [_shown(form, position, event) for position, event in page.events]
    if page.gap is not None:
        written.append((None, form.tell(page.position, page.gap)))
    return written


def _shown(form: Form, position: str, event: Event) -> tuple[Event | None, bytes]:
    try:
        return event, form.show(position, event)
    except Exception:
        _log.exception("event %d of queue %r cannot be shown", event.id, event.queue)
        return None, form.tell(position, Gap.UNREADABLE)
