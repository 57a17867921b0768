"""The buffer of one subscriber of live events."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

from tarry.core.events import Event
from tarry.core.following import Gap

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
class Form:
    """Serialization of events and gaps. Subscribers of one form share the serialized text."""

    show: Callable[[str, Event], bytes]
    tell: Callable[[str, Gap], bytes]


class Stream:
    """Events that one subscriber has not consumed yet."""

    def __init__(
        self,
        wants: Callable[[Event], bool],
        form: Form,
        *,
        allowed: Callable[[], Awaitable[bool]],
        most: int,
        on_taken: Callable[[], None] = lambda: None,
    ) -> None:
        self.position: str | None = None
        """All matching events up to here were added to this stream. None: it is not fed yet."""
        self.wants = wants
        self.form = form
        self.ending: Ending | None = None
        self.on_end: Callable[[], None] = lambda: None
        self.is_allowed = allowed
        self.waited_for_from = 0.0
        """Not waited for before this time, because an earlier wait timed out."""
        self._most = most
        self._on_taken = on_taken
        self._waiting: deque[bytes] = deque()
        self._called = asyncio.Event()

    @property
    def is_behind(self) -> bool:
        return bool(self._waiting)

    @property
    def is_waited_for(self) -> bool:
        return self.is_behind and time.monotonic() >= self.waited_for_from

    def put(self, shown: list[tuple[Event | None, bytes]], position: str) -> None:
        """Add matching events. An event of None goes to every stream: it concerns the stream, not a message."""
        if self.ending is not None or self.position is None:
            return
        fresh = [text for event, text in shown if event is None or self.wants(event)]
        if len(self._waiting) + len(fresh) > self._most:
            self.end(Ending.SLOW)
            return
        self.position = position
        if fresh:
            self._waiting.extend(fresh)
            self._called.set()

    def take(self, most_bytes: int) -> bytes:
        """The buffered text, limited to about what a socket accepts at once: the rest counts as lag."""
        taken: list[bytes] = []
        size = 0
        while self._waiting and size < most_bytes:
            taken.append(self._waiting.popleft())
            size += len(taken[-1])
        if not self._waiting:
            self._on_taken()
        return b"".join(taken)

    async def something(self, timeout_s: float) -> bool:
        """Wait for text or for the end. False: neither came in time."""
        if self._waiting or self.ending is not None:
            return True
        self._called.clear()
        try:
            async with asyncio.timeout(timeout_s):
                await self._called.wait()
        except TimeoutError:
            return False
        return True

    def end(self, why: Ending) -> None:
        if self.ending is None:
            self.ending = why
            self._waiting.clear()
            self._called.set()
            self._on_taken()
            try:
                self.on_end()
            except Exception:
                _log.exception("a live stream that ends could not be told so")  # the other streams must still be ended
