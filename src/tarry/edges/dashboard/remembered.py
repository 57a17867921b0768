"""What pages need more often than it changes: it is read at most every few seconds, for all visitors together."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from tarry.core.analytics.anomalies import Anomaly
from tarry.core.analytics.port import AnalyticsQuery
from tarry.core.errors import TarryError
from tarry.core.journal.events import Event, EventKind
from tarry.core.ports import AsyncStore
from tarry.core.security.audit import Audited
from tarry.core.workers.model import RunningWorker

R = TypeVar("R")
_MOST = 1_000
_BADGES_S = 10.0
_OPEN = 100
"""Open anomalies that are counted."""
_DEPLOYS = 50
_DEPLOYS_S = 60.0
"""A process that did not mark a deploy itself shows it after this time: many rows of the audit are read to find marks."""
_PAUSES = (EventKind.QUEUE_PAUSED, EventKind.QUEUE_RESUMED)
_SKEW = timedelta(seconds=2)
MARK = "mark a deploy"
"""The action whose rows in the audit are marks of charts."""
_log = logging.getLogger("tarry")


class Remembered:
    """Values by key, each for some seconds. `forget` after an action: its effect is to be seen at once."""

    def __init__(self, timer: Callable[[], float] = time.monotonic) -> None:
        self._timer = timer
        self._values: dict[Hashable, tuple[float, Any]] = {}

    async def get(self, key: Hashable, seconds: float, read: Callable[[], Awaitable[R]]) -> R:
        until, value = self._values.get(key, (0.0, None))
        if self._timer() >= until:
            value = await read()
            if len(self._values) >= _MOST:
                self.forget()
            self._values[key] = self._timer() + seconds, value
        return value

    def forget(self) -> None:
        self._values.clear()


class Badges:
    """The numbers beside entries of the navigation, by queue. No page waits for them: they are read in the background, and
    the page that comes next shows them."""

    def __init__(
        self,
        store: AsyncStore,
        grouped: Callable[[Sequence[Anomaly]], Sequence[Sequence[Anomaly]]],
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        """`grouped`: the entries of the inbox, of which each is counted once."""
        self._store = store
        self._grouped = grouped
        self._timer = timer
        self._read_at = float("-inf")
        self._task: asyncio.Task[None] | None = None
        self._counts: dict[str, Mapping[str, int]] = {}
        self._anomalies: Sequence[Anomaly] = ()
        self.deploys: Sequence[Audited] = ()
        """What was marked lately, the newest first."""
        self.skewed: Sequence[RunningWorker] = ()
        """Workers whose clock differs from the database's."""
        self.pauses: Sequence[Event] = ()
        """Queues that were paused or resumed lately, the newest first."""
        self._deploys_at = float("-inf")

    def counts(self, sees: Callable[[str], bool]) -> dict[str, int]:
        """By the name of the screen, of the queues that the visitor sees."""
        if self._task is None and self._timer() >= self._read_at + _BADGES_S:
            self._task = asyncio.create_task(self._read(), name="tarry-badges")
        return {
            name: sum(count for queue, count in of_queues.items() if sees(queue))
            for name, of_queues in self._counts.items()
        }

    def queues(self, sees: Callable[[str], bool]) -> list[str]:
        """Some of the queues that the visitor sees, by name."""
        return sorted(filter(sees, self._counts.get("dead", ())))

    def anomalies(self, sees: Callable[[str], bool]) -> list[Anomaly]:
        """The open ones, the newest first."""
        return [row for row in self._anomalies if sees(row.queue)]

    async def read_deploys(self) -> None:
        self._deploys_at = self._timer()
        rows = await self._store.run(self._store.security.audits(limit=_DEPLOYS, action=f"dashboard: {MARK}"))
        self.deploys = [row for row in rows if row.status in (None, 303)]

    async def _read(self) -> None:
        try:
            standings = await self._store.run(self._store.rollups.standings(limit=100))
            dead = {row.queue: row.dead.n for row in standings}
            page = await self._store.run(
                self._store.analytics.anomalies(AnalyticsQuery(limit=_OPEN), acknowledged=False)
            )
            self._anomalies = page.rows
            if self._timer() >= self._deploys_at + _DEPLOYS_S:
                await self.read_deploys()
                events = self._store.analytics.events(AnalyticsQuery(limit=_DEPLOYS), kinds=_PAUSES)
                self.pauses = (await self._store.run(events)).rows
            workers = await self._store.run(self._store.workers.list())
            self.skewed = [worker for worker in workers if abs(worker.skew) > _SKEW]
            self._counts = {"dead": dead, "anomalies": Counter(alike[0].queue for alike in self._grouped(page.rows))}
        except TarryError as error:
            _log.info("the numbers in the navigation were not read: %s", error)
        finally:
            self._read_at, self._task = self._timer(), None
