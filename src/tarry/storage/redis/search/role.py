"""`SearchRole` on Redis: bounded scans in due order, and the jobs of the registry."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import msgspec

from tarry.core.errors import UnknownQueue
from tarry.core.messages.model import EVERYTHING, Counted, MessagePosition, StoredMessage
from tarry.core.search.bulk import KEPT_FOR, BulkJob, BulkProgress, Verb
from tarry.core.search.hits import WALK, Hit, SearchPage
from tarry.core.search.query import Search
from tarry.storage.redis.messages.steps import MessageScan
from tarry.storage.redis.operation import Op, RedisOperation, RedisRole, RoleContext, instant, operation

_TRIES = 10


class RedisSearch(RedisRole):
    def __init__(self, context: RoleContext, scan: MessageScan) -> None:
        super().__init__(context)
        self._scan = scan

    @operation
    def messages(
        self,
        search: Search,
        queues: Sequence[str],
        *,
        limit: int = 50,
        after: MessagePosition | None = None,
        payloads: bool = False,
    ) -> Op[SearchPage]:
        """Scan a share of `WALK` in each queue. The page ends where the first incomplete scan stopped."""
        scanned_messages: builtins.list[StoredMessage[bytes]] = []
        horizon: MessagePosition | None = None
        share = max(500, WALK // max(1, len(queues)))
        for queue in queues:
            position, scanned = after, 0
            while scanned < share:
                filter = replace(EVERYTHING, payloads=payloads)
                try:
                    page, position = yield from self._scan.page(queue, position, filter)
                except UnknownQueue:
                    page, position = [], None
                scanned_messages += page
                scanned += len(page)
                if position is None:
                    break
            else:
                horizon = position if horizon is None else min(horizon, position or horizon)
        inside = [
            message for message in scanned_messages if horizon is None or (message.due_at, message.version) <= horizon
        ]
        matching = [
            message
            for message in inside
            if search.state in (None, message.state) and search.admits(Hit.of_live(message))
        ]
        matching.sort(key=lambda message: (message.due_at, message.version))
        return SearchPage(
            messages=matching[: max(limit, 0)],
            matching=Counted(len(matching), capped=horizon is not None),
            scanned=len(inside),
            horizon=horizon,
        )

    def journal_since(self) -> RedisOperation[datetime | None]:
        """Not known: each queue keeps its last events, however old they are."""
        return self._result(None)

    @operation
    def start_bulk(
        self, verb: Verb, query: str, queues: Sequence[str], *, started_by: str, error: str | None = None
    ) -> Op[BulkJob]:
        now, _ = yield from self._registry("search/jobs", limit=0)
        job = BulkJob.begin(0, verb, query, queues, instant(now), by=started_by, error=error)
        return replace(job, id=(yield from self._registry("search/add_job", [msgspec.json.encode(job)])))

    @operation
    def bulk_jobs(
        self, *, job: int | None = None, idle_for: timedelta | None = None, limit: int = 50
    ) -> Op[builtins.list[BulkJob]]:
        now, rows = yield from self._registry("search/jobs", id=job, limit=1_000)
        jobs = [_job(id, text) for id, text in zip(rows[::2], rows[1::2], strict=True)]
        if idle_for is not None:
            jobs = [each for each in jobs if each.is_running and each.updated_at < instant(now) - idle_for]
        return jobs[: max(limit, 0)]

    @operation
    def save_bulk(self, job: int, progress: BulkProgress, *, step: int | None = None) -> Op[BulkJob | None]:
        for _ in range(_TRIES):
            now, rows = yield from self._registry("search/jobs", id=job, limit=1)
            saved = _job(*rows).saved(instant(now), progress, step) if rows else None
            if saved is None:
                return None
            texts = [msgspec.json.encode(saved), rows[1]]
            if (yield from self._registry("search/save_job", texts, id=job)):
                return saved
        return None

    @operation
    def forget_bulk(self, *, limit: int = 1_000) -> Op[int]:
        now, rows = yield from self._registry("search/jobs", limit=10_000)
        jobs = [_job(id, text) for id, text in zip(rows[::2], rows[1::2], strict=True)]
        old = [job.id for job in jobs if job.ended_at and job.ended_at < instant(now) - KEPT_FOR][: max(limit, 0)]
        return (yield from self._registry("search/forget_jobs", ids=old))


def _job(id: int, text: bytes) -> BulkJob:
    return replace(msgspec.json.decode(text, type=BulkJob), id=id)
