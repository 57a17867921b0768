"""Being the one who does what only one should do, for as long as the database agrees.

Nobody needs to be told that the leader is gone: its lease runs out by the database's clock, and whoever asks next leads. And
nobody needs to trust a leader's own clock: it hands its `Leadership` to every write, and the database refuses a write
under a number that is no longer the current one. A leader that was stopped for an hour, and wakes in the middle of a
sentence, changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from uuid import uuid4

from tarry.core.chores import AsyncLeading
from tarry.core.leading import Leadership


class Leader:
    """A candidate for one office. `lead` before every piece of work: it asks the database only when it is time to."""

    def __init__(
        self,
        store: AsyncLeading,
        name: str,
        *,
        holder: str = "",
        lead_for: timedelta = timedelta(seconds=30),
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._name = name
        # Of two candidates in one process each is somebody.
        self._holder = f"{holder or 'candidate'}/{uuid4().hex[:8]}"
        self._lead_for = lead_for
        self._timer = timer
        self._held: Leadership | None = None
        self._asked_at = 0.0

    @property
    def held(self) -> Leadership | None:
        """What was last heard; whether it still holds, only the database can say."""
        return self._held

    async def lead(self) -> Leadership | None:
        """The leadership under which to work now; None: somebody else leads."""
        asked_at = self._timer()
        if self._held is not None and asked_at - self._asked_at < self._lead_for.total_seconds() / 3:
            return self._held
        held = None if self._held is None else await self._store.lead_on(self._held, self._lead_for)
        self._held = held or await self._store.lead(self._name, self._holder, self._lead_for)
        self._asked_at = asked_at
        return self._held

    async def resign(self) -> None:
        """Let somebody else lead at once, instead of when the lease has run out."""
        held, self._held = self._held, None
        if held is not None:
            await self._store.lead_end(held)
