"""`SearchRole` in memory: everything is scanned."""

import builtins
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count

from tarry.core.messages.model import Counted, MessagePosition, StoredMessage
from tarry.core.search.bulk import KEPT_FOR, BulkJob, BulkProgress, Verb
from tarry.core.search.hits import Hit, SearchPage
from tarry.core.search.query import Search
from tarry.storage.memory.state import MemoryRole, MemoryState, locked


class MemorySearch(MemoryRole):
    def __init__(self, state: MemoryState) -> None:
        super().__init__(state)
        self._bulk_jobs: dict[int, BulkJob] = {}
        self._bulk_ids = count(1)

    @locked
    def messages(
        self,
        search: Search,
        queues: Sequence[str],
        *,
        limit: int = 50,
        after: MessagePosition | None = None,
        payloads: bool = False,
    ) -> SearchPage:
        scanned = self._live(queues)
        matching = [
            message
            for message in scanned
            if search.state in (None, message.state)
            and (after is None or (message.due_at, message.version) > after)
            and search.admits(Hit.of_live(message))
        ]
        page = sorted(matching, key=lambda message: (message.due_at, message.version))[: max(limit, 0)]
        return SearchPage(
            messages=page if payloads else [replace(message, payload=b"") for message in page],
            matching=Counted(len(matching)),
            scanned=len(scanned),
        )

    @locked
    def journal_since(self) -> datetime | None:
        events = self._state.events
        return events[0][0].at if events else None

    @locked
    def start_bulk(
        self, verb: Verb, query: str, queues: Sequence[str], *, started_by: str, error: str | None = None
    ) -> BulkJob:
        job = BulkJob.begin(next(self._bulk_ids), verb, query, queues, self._now, by=started_by, error=error)
        self._bulk_jobs[job.id] = job
        return job

    @locked
    def bulk_jobs(
        self, *, job: int | None = None, idle_for: timedelta | None = None, limit: int = 50
    ) -> builtins.list[BulkJob]:
        jobs = [
            stored
            for stored in reversed(self._bulk_jobs.values())
            if job in (None, stored.id)
            and (idle_for is None or (stored.is_running and stored.updated_at < self._now - idle_for))
        ]
        return jobs[: max(limit, 0)]

    @locked
    def save_bulk(self, job: int, progress: BulkProgress, *, step: int | None = None) -> BulkJob | None:
        before = self._bulk_jobs.get(job)
        saved = None if before is None else before.saved(self._now, progress, step)
        if saved is not None:
            self._bulk_jobs[job] = saved
        return saved

    @locked
    def forget_bulk(self, *, limit: int = 1_000) -> int:
        ended = [job for job in self._bulk_jobs.values() if job.ended_at and job.ended_at < self._now - KEPT_FOR]
        for job in ended[:limit]:
            del self._bulk_jobs[job.id]
        return len(ended[:limit])

    def _live(self, queues: Sequence[str]) -> builtins.list[StoredMessage[bytes]]:
        states = [self._state.queues[name] for name in queues if name in self._state.queues]
        return [row.stored(queue.name, queue.settings, self._now) for queue in states for row in queue.rows.values()]
