"""Batched acks of one queue: messages whose handlers finish while a batch is being acked join the next batch."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Sequence
from typing import Any, Final

from tarry.api.queue import AsyncQueue
from tarry.core.messages.outcomes import Settled
from tarry.services.worker.job import Job

WITHIN_S: Final = 1.0
"""Timeout of a batch: a message locked by another transaction must not delay the others for longer."""


class Acks:
    """Collects messages to ack in one statement. The task of a handler finishes without waiting for its ack."""

    def __init__(
        self,
        queue: AsyncQueue[Any],
        settled: Callable[[Sequence[tuple[Job, Settled]]], None],
        failed: Callable[[Job], None],
    ) -> None:
        """`failed`: the message's batch failed and may have been executed; the caller acks the message individually."""
        self._queue = queue
        self._settled = settled
        self._failed = failed
        self._waiting: list[Job] = []
        self.flusher: asyncio.Task[None] | None = None

    def add(self, job: Job, context: contextvars.Context) -> None:
        """`context`: the worker's. The caller's belongs to one handler, and the batch to many."""
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
                except Exception:  # acked individually, each message gets its own error
                    for job in batch:
                        self._failed(job)
                else:
                    self._settled(list(zip(batch, outcomes, strict=True)))
        finally:
            self.flusher = None
