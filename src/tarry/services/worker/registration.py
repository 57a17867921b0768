"""Periodic report of a worker, whose response may request a drain."""

import asyncio
import logging
import os
import socket
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from tarry.core.errors import TarryError
from tarry.core.ports import AsyncStore
from tarry.core.workers.model import REPORT_EVERY, WorkerReport
from tarry.services.loop import Loop

_log = logging.getLogger("tarry.worker")
_LEAVE_S = 0.5


class Registration:
    """Sends one statement per `REPORT_EVERY`. Handling of messages never depends on it."""

    def __init__(
        self,
        store: AsyncStore,
        consumer: str,
        queues: Sequence[str],
        concurrency: int,
        activity: Callable[[], tuple[int, int, bool]],
        release: str | None = None,
    ) -> None:
        """`activity`: returns running handlers, prolonged leases, and whether the worker is stopping."""
        self._store = store
        self._about: dict[str, Any] = {
            "id": uuid.uuid4().hex,
            "consumer": consumer,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "version": version("tarry"),
            "queues": tuple(queues),
            "concurrency": concurrency,
            "release": release,
        }
        self._activity = activity
        self.on_drain: Callable[[], None] = lambda: None
        self.loop = Loop("worker report", self.run_once, every=REPORT_EVERY)

    async def run_once(self) -> None:
        running, extensions, is_stopping = self._activity()
        report = WorkerReport(
            **self._about, running=running, extensions=extensions, is_stopping=is_stopping, at=datetime.now(UTC)
        )
        try:
            is_drained = await self._store.run(self._store.workers.report(report))
        except TarryError as error:  # the next report is soon enough
            _log.debug("the worker could not report: %s", error)
            return
        if is_drained and not is_stopping:
            _log.info("a drain was requested: no new messages")
            self.on_drain()

    async def leave(self) -> None:
        """Remove the worker's entry; if the store is unavailable, the entry expires later."""
        try:
            async with asyncio.timeout(_LEAVE_S):
                await self._store.run(self._store.workers.leave(self._about["id"]))
        except (TarryError, TimeoutError) as error:
            _log.debug("the worker could not report its end: %s", error)
