"""Actions on many messages: a job of this process that goes through all matches page by page, and can be cancelled.

Every step takes the messages that match at that moment, and changes only the version that it has found. So a job that ends
early has done a part, and the same job again does the rest.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from itertools import count
from typing import NamedTuple

from tarry.core.errors import InvalidState, TarryError
from tarry.core.messages.edits import Edit
from tarry.core.messages.outcomes import Edited
from tarry.core.messages.states import LIVE, State
from tarry.core.ports import AsyncStore
from tarry.core.search.query import Search
from tarry.services.search import Start, find

PAGE = 200
MOST = 100_000
"""Messages that one job changes."""
RUNNING = 4
KEPT = 50
_DUE = Edit(named=frozenset({"due_at"}), after=timedelta(0))
_log = logging.getLogger("tarry")


class Verb(StrEnum):
    DELIVER = "deliver"
    BURY = "bury"
    DROP = "drop"


class SeenMessage(NamedTuple):
    """A message as it was seen."""

    queue: str
    key: str
    version: int


async def apply(store: AsyncStore, verb: Verb, seen: SeenMessage, *, error: str | None = None) -> bool:
    """Whether the message was changed: not if it has changed since it was seen, or is leased."""
    queue, key, version = seen
    match verb:
        case Verb.DELIVER:
            return await store.run(store.messages.edit(queue, key, _DUE, version=version)) is Edited.UPDATED
        case Verb.BURY:
            bury = store.messages.bury_by_key(queue, key, error=error, version=version)
            return await store.run(bury) is Edited.UPDATED
        case Verb.DROP:
            return await store.run(store.messages.drop(queue, key, version=version, unless_leased=True))


@dataclass(slots=True)
class BulkJob:
    number: int
    verb: Verb
    query: str
    started_by: str
    queues: Sequence[str]
    changed: int = 0
    skipped: int = 0
    state: str = "running"
    """running, done, cancelled or failed."""
    reason: str | None = None
    task: asyncio.Task[None] | None = field(default=None, repr=False)


class BulkJobs:
    """The jobs of this process."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._numbers = count(1)
        self._jobs: dict[int, BulkJob] = {}

    @property
    def jobs(self) -> Mapping[int, BulkJob]:
        return self._jobs

    def start(
        self, verb: Verb, search: Search, query: str, queues: Sequence[str], *, by: str, error: str | None
    ) -> BulkJob:
        if sum(job.state == "running" for job in self._jobs.values()) >= RUNNING:
            raise InvalidState(f"{RUNNING} jobs are running", hint="wait until one is done, or cancel it")
        for number in [number for number, job in self._jobs.items() if job.state != "running"][: -KEPT or None]:
            del self._jobs[number]
        job = BulkJob(next(self._numbers), verb, query, by, queues)
        self._jobs[job.number] = job
        job.task = asyncio.create_task(self._run(job, search, error), name=f"tarry-bulk-{job.number}")
        return job

    def cancel(self, number: int) -> None:
        job = self._jobs[number]
        if job.state == "running":
            job.state = "cancelled"

    async def _run(self, job: BulkJob, search: Search, error: str | None) -> None:
        try:
            await self._go_through(job, search, error)
            if job.state == "running":
                job.state = "done"
        except (TarryError, asyncio.CancelledError) as failure:
            job.state, job.reason = "failed", str(failure) or "the server was stopped"
            _log.warning("bulk job %d failed: %s", job.number, failure)

    async def _go_through(self, job: BulkJob, search: Search, error: str | None) -> None:
        after = None
        while True:
            hits = await find(self._store, search, job.queues, limit=PAGE, start=Start(live=after))
            for hit in hits.rows:
                if job.state != "running":
                    return
                # What is ready needs no delivery, and would be due later than before: the job would meet it again.
                takes = hit.state is State.DELAYED if job.verb is Verb.DELIVER else hit.state in LIVE
                seen = SeenMessage(hit.queue, hit.key, hit.version)
                if not takes or not await apply(self._store, job.verb, seen, error=error):
                    job.skipped += 1
                else:
                    job.changed += 1
            after = hits.next_live
            if after is None:
                return
            if job.changed + job.skipped >= MOST:
                job.reason = f"a job changes at most {MOST:,} messages: start it again for the rest"
                return
