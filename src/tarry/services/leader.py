"""Leader election by a lease in the database, with fencing tokens.

The lease of a dead leader expires by the database's clock, and the next candidate takes over. A leader's own clock need
not be trusted: it passes its `Leadership` to every write, and the database rejects a write with an outdated fencing
token. A leader that was suspended for an hour changes nothing when it resumes."""

import time
from collections.abc import Callable
from datetime import timedelta
from uuid import uuid4

from tarry.core.maintenance.leadership import Leadership
from tarry.core.ports import AsyncStore


class Leader:
    """A candidate in one election. Call `leadership` before every step: it queries the database only when necessary."""

    def __init__(
        self,
        store: AsyncStore,
        name: str,
        *,
        holder: str = "",
        lead_for: timedelta = timedelta(seconds=30),
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._name = name
        # Unique, so that two candidates in one process are distinct.
        self._holder = f"{holder or 'candidate'}/{uuid4().hex[:8]}"
        self._lead_for = lead_for
        self._timer = timer
        self._held: Leadership | None = None
        self._renewed_s = 0.0

    @property
    def held(self) -> Leadership | None:
        """The last known leadership; only the database knows whether it is still valid."""
        return self._held

    async def leadership(self) -> Leadership | None:
        """The leadership to work under; None if another process leads."""
        now_s = self._timer()
        if self._held is not None and now_s - self._renewed_s < self._lead_for.total_seconds() / 3:
            return self._held
        maintenance, held = self._store.maintenance, self._held
        if held is not None:
            held = await self._store.run(maintenance.renew(held, self._lead_for))
        if held is None:
            held = await self._store.run(maintenance.acquire(self._name, self._holder, self._lead_for))
        self._held = held
        self._renewed_s = now_s
        return self._held

    async def resign(self) -> None:
        """Give up the leadership now, so that another candidate need not wait for the lease to expire."""
        held, self._held = self._held, None
        if held is not None:
            await self._store.run(self._store.maintenance.resign(held))
