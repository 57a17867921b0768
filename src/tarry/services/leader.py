"""Leader election by a lease in the database, with fencing tokens.

The lease of a dead leader expires by the database's clock, and the next candidate takes over. A leader's own clock need
not be trusted: it passes its `Leadership` to every write, and the database rejects a write with an outdated fencing
token. A leader that was suspended for an hour changes nothing when it resumes."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import uuid4

from tarry.core.maintenance.leadership import Leadership
from tarry.core.ports import AsyncStore


@dataclass(eq=False)
class Leader:
    """A candidate in one election. Call `leadership` before every step: it queries the database only when necessary."""

    store: AsyncStore
    name: str
    holder: str = "candidate"
    lead_for: timedelta = timedelta(seconds=30)
    timer: Callable[[], float] = time.monotonic
    held: Leadership | None = field(default=None, init=False)
    """The last known leadership; only the database knows whether it is still valid."""
    renewed_s: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        # Unique, so that two candidates in one process are distinct.
        self.holder = f"{self.holder}/{uuid4().hex[:8]}"

    async def leadership(self) -> Leadership | None:
        """The leadership to work under; None if another process leads."""
        now_s = self.timer()
        if self.held is not None and now_s - self.renewed_s < self.lead_for.total_seconds() / 3:
            return self.held
        maintenance, held = self.store.maintenance, self.held
        if held is not None:
            held = await self.store.run(maintenance.renew(held, self.lead_for))
        if held is None:
            held = await self.store.run(maintenance.acquire(self.name, self.holder, self.lead_for))
        self.held = held
        self.renewed_s = now_s
        return self.held

    async def resign(self) -> None:
        """Give up the leadership now, so that another candidate need not wait for the lease to expire."""
        held, self.held = self.held, None
        if held is not None:
            await self.store.run(self.store.maintenance.resign(held))
