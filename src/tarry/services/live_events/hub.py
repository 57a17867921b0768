"""Fan-out of the journal: one reader tails it and distributes events to many subscribers.

Nothing is read while there are no subscribers. A subscriber that does not keep up is disconnected, so it costs no more than
its buffer; it may resume from its last position and catch up from the journal."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from tarry.core.journal.events import Event
from tarry.core.journal.positions import EventPage, GapReason
from tarry.core.ports import AsyncStore
from tarry.services.live_events.stream import Ending, EventFormat, Stream
from tarry.services.loop import Loop

_log = logging.getLogger("tarry")

PAGE = 500
REPLAYS = 4
"""Maximum number of concurrent replays: when all subscribers reconnect, other queries still need the database."""
TAKEN_WITHIN_S = 0.5
"""How long subscribers have to consume one page before the next one is added."""
NOT_AGAIN_S = 30.0
_QUICK_S, _CALM_S = 0.05, 0.25
"""The journal is polled after the first while events arrive, and when idle progressively less often, up to the second."""
REPLAYED_BYTES = 256 * 1024
"""Memory per subscriber that catches up, plus at most one event."""
PAGES_AT_ONCE = 4
"""Maximum pages per cycle: access checks and joins must not wait for the end of a fast-growing journal."""


@dataclass(frozen=True, slots=True)
class Replayed:
    text: bytes
    position: str
    """Where to resume."""
    complete: bool
    is_gap: bool = False


@dataclass(eq=False)
class EventHub:
    """Distributes new journal events to streams. Each event is serialized once per format."""

    store: AsyncStore
    format: EventFormat
    buffer: int
    """Events that a subscriber may lag behind."""
    most: int
    """Maximum number of events per read or replay."""
    check_every: timedelta = timedelta(seconds=2)
    is_stopping: bool = False
    cut_off: int = 0
    _streams: set[Stream] = field(default_factory=set[Stream])
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    _replaying: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(REPLAYS))
    _taken: asyncio.Event = field(default_factory=asyncio.Event)
    _position: str | None = None
    _read_at: float = 0.0
    _checked_at: float = 0.0
    _rest_s: float = 0.0
    _loop: Loop | None = None

    def __post_init__(self) -> None:
        self._page = min(PAGE, self.buffer)

    @property
    def open(self) -> int:
        return len(self._streams)

    @asynccontextmanager
    async def stream(
        self,
        wants: Callable[[Event], bool],
        *,
        allowed: Callable[[], Awaitable[bool]],
        format: EventFormat | None = None,
    ) -> AsyncGenerator[Stream]:
        """A subscriber, which gets nothing before it joins. The first one starts the loop, the last one stops it."""
        stream = Stream(wants, format or self.format, allowed, self.buffer, on_taken=self._taken.set)
        self._streams.add(stream)
        if self.is_stopping:
            stream.end(Ending.STOPPING)
        elif self._loop is None:
            self._position = None  # start at the current position: events without subscribers are not replayed
            self._loop = Loop("live events", self.run_once, every=timedelta(seconds=_CALM_S))
            self._loop.start()
        try:
            yield stream
        finally:
            stream.end(Ending.GONE)
            self.cut_off += stream.ending is Ending.SLOW
            self._streams.discard(stream)
            if not self._streams and self._loop is not None:
                loop, self._loop = self._loop, None
                await loop.end()

    async def join(self, stream: Stream) -> str:
        """Start feeding a stream; returns its start position, after all events distributed so far."""
        called_at = time.monotonic()
        async with self._reading:
            if self._position is None:
                started_at = time.monotonic()
                self._position, self._read_at = await self._head(), started_at
            elif self._read_at < called_at:
                # The reader must not be behind a position that the subscriber got here or from another broker. Concurrent
                # joins share one read.
                started_at = time.monotonic()
                if not await self._read(started_at):
                    # The journal grows faster than it is read: read up to the current head only.
                    head = await self._head()
                    while not await self._read_page(until=head):
                        pass
            stream.position = self._position
            return self._position

    async def _head(self) -> str:
        """The current end of the journal."""
        return (await self.store.run(self.store.journal.tail(None))).position

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
        """Also returns the next page size. The text is limited, because many subscribers may read slowly."""
        page = await self.store.run(self.store.journal.tail(after, until=until, limit=limit, most=self.most))
        if page.gap is not None:
            text = stream.format.gap(page.position, page.gap)
            return Replayed(text, page.position, complete=page.complete, is_gap=True), limit
        texts: list[bytes] = []
        size = 0
        for n, (position, event) in enumerate(page.events, 1):
            if stream.wants(event):
                texts.append(_serialize(stream.format, position, event)[1])
                size += len(texts[-1])
                if size >= REPLAYED_BYTES:
                    return Replayed(b"".join(texts), position, complete=False), n
        return Replayed(b"".join(texts), page.position, complete=page.complete), min(self._page, limit * 2)

    def stop(self) -> None:
        """Stop permanently: current and later subscribers get the ending STOPPING."""
        self.is_stopping = True
        for stream in list(self._streams):
            stream.end(Ending.STOPPING)

    async def run_once(self) -> float:
        async with self._reading:
            started_at = time.monotonic()
            before, is_done = self._position, await self._read(started_at)
            is_new, took_s = self._position != before, time.monotonic() - started_at
        if started_at >= self._checked_at + self.check_every.total_seconds():
            self._checked_at = started_at
            for stream in list(self._streams):
                if not await stream.is_allowed():
                    stream.end(Ending.REFUSED)
        if not is_done:
            return 0.0
        # The longer the distribution takes, the longer the rest and the larger the next batch: other tasks need the CPU.
        self._rest_s = max(_QUICK_S, took_s) if is_new else min(_CALM_S, max(_QUICK_S, self._rest_s * 2))
        return self._rest_s

    async def _read(self, started_at: float) -> bool:
        """Distribute new events. True: caught up. Under the lock, so that no subscriber joins in between."""
        for _ in range(PAGES_AT_ONCE):
            if self._position is None:
                return True
            if await self._read_page():
                self._read_at = started_at
                return True
        return False

    async def _read_page(self, *, until: str | None = None) -> bool:
        """True: caught up."""
        page = await self.store.run(
            self.store.journal.tail(self._position, until=until, limit=self._page, most=self.most)
        )
        texts = {format: _serialize_page(format, page) for format in {stream.format for stream in self._streams}}
        for stream in list(self._streams):
            try:
                stream.put(texts[stream.format], page.position)
            except Exception:
                _log.exception("a live stream failed and is closed")
                stream.end(Ending.FAILED)  # the client resumes from the last position it received
        self._position = page.position  # only now: after a failure above, all streams must get the page again
        await self._until_taken()
        return page.complete

    async def _until_taken(self) -> None:
        """Wait for subscribers to consume the page: otherwise a burst would disconnect readers whose tasks had no chance to
        run. Slow readers are not waited for again: together they would delay all others."""
        try:
            async with asyncio.timeout(TAKEN_WITHIN_S):
                while any(stream.is_waited_for for stream in self._streams):
                    self._taken.clear()
                    await self._taken.wait()
        except TimeoutError:
            for stream in self._streams:
                if stream.is_waited_for:
                    stream.waited_for_from = time.monotonic() + NOT_AGAIN_S


def _serialize_page(format: EventFormat, page: EventPage) -> list[tuple[Event | None, bytes]]:
    texts = [_serialize(format, position, event) for position, event in page.events]
    if page.gap is not None:
        texts.append((None, format.gap(page.position, page.gap)))
    return texts


def _serialize(format: EventFormat, position: str, event: Event) -> tuple[Event | None, bytes]:
    try:
        return event, format.event(position, event)
    except Exception:
        _log.exception("event %d of queue %r cannot be serialized", event.id, event.queue)
        return None, format.gap(position, GapReason.UNREADABLE)
