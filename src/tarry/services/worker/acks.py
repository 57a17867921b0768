"""Acks of one queue, in batches: messages whose handlers end while a batch is being acked belong to the next batch."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Sequence
from typing import Any, Final

from tarry.api.queue import AsyncQueue
from tarry.core.messages.outcomes import Settled
from tarry.services.worker.job import Job

WITHIN_S: Final = 1.0
"""How long a batch may take: one message that another transaction has locked must not delay the others for longer."""


class Acks:
    """A task that has run its handler is over: nothing waits for each ack, and the statement is made once for all of them."""

    def __init__(
        self,
        queue: AsyncQueue[Any],
        settled: Callable[[Sequence[tuple[Job, Settled]]], None],
        failed: Callable[[Job], None],
    ) -> None:
        """`failed`: the batch of this message failed, and may have been executed; it is to be acked by itself."""
        self._queue = queue
        self._settled = settled
        self._failed = failed
        self._waiting: list[Job] = []
        self.flusher: asyncio.Task[None] | None = None

    def add(self, job: Job, context: contextvars.Context) -> None:
        """`context`: of the worker. The caller's is that of one handler, and the batch is of many."""
        self._waiting.append(job)
        if self.flusher is None:
            self.flusher = asyncio.create_task(self._flush_until_empty(), name="tarry-acks", context=context.copy())

    async def _flush_until_empty(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                try:
                    async with asyncio.timeout(WITHIN_S):
                        outcomes = await self._queue.leases.ack([job.delivery.lease_id for job in batch])
                except Exception:  # each message is acked alone, and gets its own error
                    for job in batch:
                        self._failed(job)
                else:
                    self._settled(list(zip(batch, outcomes, strict=True)))
        finally:
            self.flusher = None
