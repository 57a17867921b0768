# Generated from src/tarry/api/redrives.py by tools/generate-blocking. Edit that file, then run `make generate`.
"""The blocking half of `tarry.api.redrives`."""

from __future__ import annotations

import builtins
from typing import Any

from tarry.api.validation import checked_text
from tarry.core import limits
from tarry.core._sync.ports import Store
from tarry.core.dead_letters.redrive import RedriveJob, RedriveState
from tarry.core.errors import UnknownRedrive


class Redrive:
    """One redrive job. `job` is its last known state; every verb refreshes it."""

    def __init__(self, store: Store, job: RedriveJob) -> None:
        self._store = store
        self._role = store.dead_letters
        self.job = job

    @property
    def id(self) -> int:
        return self.job.id

    def refresh(self, *, conn: Any = None) -> RedriveJob:
        self.job = _known(self._store.run(self._role.redrive_job(self.id), conn), self.id)
        return self.job

    def advance(self, *, conn: Any = None) -> RedriveJob:
        """Make one step if it is due; for programs without a sweeper."""
        self._store.run(self._role.advance_redrive(self.id), conn)
        return self.refresh(conn=conn)

    def pause(self, reason: str | None = None, *, conn: Any = None) -> RedriveJob:
        return self._turn(RedriveState.PAUSED, reason, conn)

    def resume(self, *, conn: Any = None) -> RedriveJob:
        """Continue, including a job that paused because its canaries died again."""
        return self._turn(RedriveState.RUNNING, None, conn)

    def cancel(self, reason: str | None = None, *, conn: Any = None) -> RedriveJob:
        """Stop the job for good. Redriven messages stay live, the others stay dead."""
        return self._turn(RedriveState.CANCELLED, reason, conn)

    def _turn(self, state: RedriveState, reason: str | None, conn: Any) -> RedriveJob:
        why = checked_text(reason, "reason")
        self.job = self._store.run(self._role.turn_redrive(self.id, state, reason=why), conn)
        return self.job


class Redrives:
    """All redrive jobs of a database: `app.redrives`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._role = store.dead_letters

    def list(self, queue: str | None = None, *, limit: int = 100, conn: Any = None) -> builtins.list[RedriveJob]:
        """Newest first."""
        name = None if queue is None else limits.check_queue_name(queue)
        return self._store.run(self._role.redrive_jobs(name, limit=limits.check_count(limit, "limit")), conn=conn)

    def get(self, job: int, *, conn: Any = None) -> Redrive:
        number = limits.check_count(job, "job")
        return Redrive(self._store, _known(self._store.run(self._role.redrive_job(number), conn), number))


def _known(job: RedriveJob | None, number: int) -> RedriveJob:
    if job is None:
        raise UnknownRedrive(number)
    return job
