"""Handles on redrive jobs: progress and control."""

import builtins
from typing import Any

from tarry.api.validation import checked_text
from tarry.core import limits
from tarry.core.dead_letters.redrive import RedriveJob, RedriveState
from tarry.core.errors import UnknownRedrive
from tarry.core.ports import AsyncStore


class AsyncRedrive:
    """One redrive job. `job` is its last known state; every verb refreshes it."""

    def __init__(self, store: AsyncStore, job: RedriveJob) -> None:
        self._store = store
        self._role = store.dead_letters
        self.job = job

    @property
    def id(self) -> int:
        return self.job.id

    async def refresh(self, *, conn: Any = None) -> RedriveJob:
        self.job = _known(await self._store.run(self._role.redrive_job(self.id), conn), self.id)
        return self.job

    async def advance(self, *, conn: Any = None) -> RedriveJob:
        """Make one step if it is due; for programs without a sweeper."""
        await self._store.run(self._role.advance_redrive(self.id), conn)
        return await self.refresh(conn=conn)

    async def pause(self, reason: str | None = None, *, conn: Any = None) -> RedriveJob:
        return await self._turn(RedriveState.PAUSED, reason, conn)

    async def resume(self, *, conn: Any = None) -> RedriveJob:
        """Continue, including a job that paused because its canaries died again."""
        return await self._turn(RedriveState.RUNNING, None, conn)

    async def cancel(self, reason: str | None = None, *, conn: Any = None) -> RedriveJob:
        """Stop the job for good. Redriven messages stay live, the others stay dead."""
        return await self._turn(RedriveState.CANCELLED, reason, conn)

    async def _turn(self, state: RedriveState, reason: str | None, conn: Any) -> RedriveJob:
        why = checked_text(reason, "reason")
        self.job = await self._store.run(self._role.turn_redrive(self.id, state, reason=why), conn)
        return self.job


class AsyncRedrives:
    """All redrive jobs of a database: `app.redrives`."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._role = store.dead_letters

    async def list(self, queue: str | None = None, *, limit: int = 100, conn: Any = None) -> builtins.list[RedriveJob]:
        """Newest first."""
        name = None if queue is None else limits.check_queue_name(queue)
        return await self._store.run(self._role.redrive_jobs(name, limit=limits.check_count(limit, "limit")), conn=conn)

    async def get(self, job: int, *, conn: Any = None) -> AsyncRedrive:
        number = limits.check_count(job, "job")
        return AsyncRedrive(self._store, _known(await self._store.run(self._role.redrive_job(number), conn), number))


def _known(job: RedriveJob | None, number: int) -> RedriveJob:
    if job is None:
        raise UnknownRedrive(number)
    return job
