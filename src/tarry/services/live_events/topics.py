"""Notifications for pages that reload themselves: journal events condensed to topics and queues.

A process has one journal subscription for all pages. Each page gets one short text per interval, however many events occur.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import count

from tarry.core.errors import TarryError
from tarry.core.journal.events import Event, EventKind
from tarry.services.live_events.hub import EventHub
from tarry.services.live_events.stream import Ending, EventFormat, Stream
from tarry.services.loop import Loop

_log = logging.getLogger("tarry")
CLOCK = "clock"
"""The topic of values that change without events: lateness, and results of other processes."""
_CLOCK_EVERY = 5
TOPICS = frozenset({"queues", "messages", "dead", "schedules", "consumers"})
"""Topics of events."""
_DEAD = frozenset({EventKind.BURIED, EventKind.REDRIVEN, EventKind.DISCARDED})
_CONSUMERS = frozenset({EventKind.LEASED, EventKind.ACKED, EventKind.NACKED, EventKind.EXPIRED})
_BUFFER = 20

Changes = dict[str, set[str]]
"""Topics by queue."""
Describe = Callable[[int, Collection[str], Collection[str]], bytes]
"""Formats one notification from its number, topics and queues; without queues, any queue may have changed."""


def topics_of(event: Event) -> set[str]:
    kind = event.kind
    topics = {"queues"} if kind.value.startswith("queue_") else {"messages"}
    if kind.value.startswith("cron_"):
        topics.add("schedules")
    if kind in _DEAD:
        topics.add("dead")
    if kind in _CONSUMERS:
        topics.add("consumers")
    return topics


class TopicHub:
    """Notifies streams of changed topics once per interval."""

    def __init__(self, events: EventHub, describe: Describe, every: timedelta) -> None:
        self._events = events
        self._describe = describe
        self._every = every
        self._streams: dict[Stream, Callable[[Event], bool]] = {}
        self._changes: dict[str, tuple[Event, set[str]]] = {}
        self._numbers = count(1)
        self._number = 0
        self._rounds = 0
        self._is_joined_anew = False
        """Events before the subscription, or in a gap, are unknown: all topics may have changed."""
        self._running: asyncio.Task[None] | None = None

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
        """A subscriber. `wants` decides by an event's queue whether the subscriber may see it."""
        stream = Stream(wants, format or _NO_FORMAT, allowed, _BUFFER)
        self._streams[stream] = wants
        if self._events.is_stopping:
            stream.end(Ending.STOPPING)
        elif self._running is None:
            self._running = asyncio.create_task(self._run(), name="tarry-topics")
        try:
            yield stream
        finally:
            stream.end(Ending.GONE)
            del self._streams[stream]
            if not self._streams and self._running is not None:
                running, self._running = self._running, None
                running.cancel()
                await asyncio.wait({running})

    async def join(self, stream: Stream) -> str:
        stream.position = str(self._number)
        return stream.position

    async def run_once(self) -> None:
        """Send the topics changed since the last run to the streams that may see them."""
        changes, self._changes = self._changes, {}
        self._number, self._rounds = next(self._numbers), self._rounds + 1
        clock = {CLOCK} if not self._rounds % _CLOCK_EVERY else set[str]()
        unknown, self._is_joined_anew = TOPICS if self._is_joined_anew else frozenset[str](), False
        for stream, wants in list(self._streams.items()):
            if self._events.is_stopping:
                stream.end(Ending.STOPPING)
                continue
            visible = {queue: topics for queue, (event, topics) in changes.items() if wants(event)}
            topics = clock.union(unknown, *visible.values())
            if topics:
                queues = () if unknown else sorted(visible)
                stream.put([(None, self._describe(self._number, sorted(topics), queues))], str(self._number))
            if clock and not await self._still_allowed(stream):
                stream.end(Ending.REFUSED)

    async def _still_allowed(self, stream: Stream) -> bool:
        try:
            return await stream.is_allowed()
        except TarryError:
            return True  # unknown; without a database there is nothing to see either

    async def _run(self) -> None:
        """The journal subscription of this process. Whenever it starts, pages reload once: they were loaded before."""
        while True:
            async with self._events.stream(self._note, allowed=_always) as source:
                loop = Loop("topics", self.run_once, every=self._every)
                sending = asyncio.create_task(loop.run(), name="tarry-topics-loop")
                try:
                    await self._events.join(source)
                    self._is_joined_anew = True
                    while source.ending is None:
                        await source.wait(60.0)
                        if source.is_behind:  # by a gap in the journal, the only buffered text
                            source.take(1)
                            self._is_joined_anew = True
                except TarryError as error:
                    _log.warning("the dashboard gets no live events: %s", error)
                finally:
                    loop.stop()
                    sending.cancel()
                    await asyncio.wait({sending})
                if source.ending is Ending.STOPPING:
                    for stream in list(self._streams):
                        stream.end(Ending.STOPPING)
                    return
            await asyncio.sleep(self._every.total_seconds())

    def _note(self, event: Event) -> bool:
        """Record the topics of an event; the event itself is not buffered."""
        known = self._changes.get(event.queue)
        if known is None:
            self._changes[event.queue] = (event, topics_of(event))
        else:
            known[1].update(topics_of(event))
        return False


async def _always() -> bool:
    return True


_NO_FORMAT = EventFormat(lambda position, event: b"", lambda position, gap: b"")
