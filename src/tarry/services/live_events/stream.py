"""Buffer of one live event subscriber."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum

from tarry.core.journal.events import Event
from tarry.core.journal.positions import GapReason

_log = logging.getLogger("tarry")


class Ending(StrEnum):
    """Why a stream has ended."""

    GONE = "gone"
    SLOW = "slow"
    REFUSED = "refused"
    """The subscriber's access was revoked."""
    STOPPING = "stopping"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class EventFormat:
    """Serializes events and gaps with their positions. Subscribers with the same format share the text."""

    event: Callable[[str, Event], bytes]
    gap: Callable[[str, GapReason], bytes]


@dataclass(slots=True, eq=False)
class Stream:
    """Events that one subscriber has not consumed yet."""

    wants: Callable[[Event], bool]
    format: EventFormat
    is_allowed: Callable[[], Awaitable[bool]]
    most: int
    on_taken: Callable[[], None] = lambda: None
    on_end: Callable[[], None] = lambda: None
    position: str | None = None
    """All matching events up to here were added to this stream. None: it is not fed yet."""
    ending: Ending | None = None
    waited_for_from: float = 0.0
    """Not waited for before this time, because an earlier wait timed out."""
    waiting: deque[bytes] = field(default_factory=deque[bytes])
    wakeup: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_behind(self) -> bool:
        return bool(self.waiting)

    @property
    def is_waited_for(self) -> bool:
        return self.is_behind and time.monotonic() >= self.waited_for_from

    def put(self, texts: list[tuple[Event | None, bytes]], position: str) -> None:
        """Add matching events. Text without an event, such as a gap, goes to every stream."""
        if self.ending is not None or self.position is None:
            return
        fresh = [text for event, text in texts if event is None or self.wants(event)]
        if len(self.waiting) + len(fresh) > self.most:
            self.end(Ending.SLOW)
            return
        self.position = position
        if fresh:
            self.waiting.extend(fresh)
            self.wakeup.set()

    def take(self, most_bytes: int) -> bytes:
        """The buffered text up to about `most_bytes`, the size of a socket buffer: the rest counts as lag."""
        taken: list[bytes] = []
        size = 0
        while self.waiting and size < most_bytes:
            taken.append(self.waiting.popleft())
            size += len(taken[-1])
        if not self.waiting:
            self.on_taken()
        return b"".join(taken)

    async def wait(self, timeout_s: float) -> bool:
        """Wait for text or for the end. False: neither came in time."""
        if self.waiting or self.ending is not None:
            return True
        self.wakeup.clear()
        try:
            async with asyncio.timeout(timeout_s):
                await self.wakeup.wait()
        except TimeoutError:
            return False
        return True

    def end(self, why: Ending) -> None:
        if self.ending is None:
            self.ending = why
            self.waiting.clear()
            self.wakeup.set()
            self.on_taken()
            try:
                self.on_end()
            except Exception:
                # The other streams must still be closed.
                _log.exception("the end of a live stream could not be reported")
