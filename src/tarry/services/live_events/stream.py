"""Buffer of one live event subscriber."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
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


class Stream:
    """Events that one subscriber has not consumed yet."""

    def __init__(
        self,
        wants: Callable[[Event], bool],
        format: EventFormat,
        *,
        allowed: Callable[[], Awaitable[bool]],
        most: int,
        on_taken: Callable[[], None] = lambda: None,
    ) -> None:
        self.position: str | None = None
        """All matching events up to here were added to this stream. None: it is not fed yet."""
        self.wants = wants
        self.format = format
        self.ending: Ending | None = None
        self.on_end: Callable[[], None] = lambda: None
        self.is_allowed = allowed
        self.waited_for_from = 0.0
        """Not waited for before this time, because an earlier wait timed out."""
        self._most = most
        self._on_taken = on_taken
        self._waiting: deque[bytes] = deque()
        self._wakeup = asyncio.Event()

    @property
    def is_behind(self) -> bool:
        return bool(self._waiting)

    @property
    def is_waited_for(self) -> bool:
        return self.is_behind and time.monotonic() >= self.waited_for_from

    def put(self, texts: list[tuple[Event | None, bytes]], position: str) -> None:
        """Add matching events. Text without an event, such as a gap, goes to every stream."""
        if self.ending is not None or self.position is None:
            return
        fresh = [text for event, text in texts if event is None or self.wants(event)]
        if len(self._waiting) + len(fresh) > self._most:
            self.end(Ending.SLOW)
            return
        self.position = position
        if fresh:
            self._waiting.extend(fresh)
            self._wakeup.set()

    def take(self, most_bytes: int) -> bytes:
        """The buffered text up to about `most_bytes`, the size of a socket buffer: the rest counts as lag."""
        taken: list[bytes] = []
        size = 0
        while self._waiting and size < most_bytes:
            taken.append(self._waiting.popleft())
            size += len(taken[-1])
        if not self._waiting:
            self._on_taken()
        return b"".join(taken)

    async def wait(self, timeout_s: float) -> bool:
        """Wait for text or for the end. False: neither came in time."""
        if self._waiting or self.ending is not None:
            return True
        self._wakeup.clear()
        try:
            async with asyncio.timeout(timeout_s):
                await self._wakeup.wait()
        except TimeoutError:
            return False
        return True

    def end(self, why: Ending) -> None:
        if self.ending is None:
            self.ending = why
            self._waiting.clear()
            self._wakeup.set()
            self._on_taken()
            try:
                self.on_end()
            except Exception:
                # The other streams must still be closed.
                _log.exception("the end of a live stream could not be reported")
