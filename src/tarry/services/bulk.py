"""Bulk jobs: stored jobs that change all matching messages page by page, and can be watched and cancelled.

Every step searches again and changes only the versions it has read. So repeating a step, after a crash before it was stored,
changes nothing twice. A job that stops early has changed some of the messages.
"""

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from tarry.core.errors import InvalidState, TarryError
from tarry.core.messages.edits import Edit
from tarry.core.messages.outcomes import Edited
from tarry.core.messages.states import LIVE, State
from tarry.core.ports import AsyncStore
from tarry.core.search.bulk import BulkJob, BulkProgress, BulkState, Verb
from tarry.services.search import Start, find

PAGE = 200
MOST = 100_000
"""Maximum number of messages per job."""
RUNNING = 4
_DUE = Edit(named=frozenset({"due_at"}), after=timedelta(0))
_log = logging.getLogger("tarry")


class SeenMessage(NamedTuple):
    """The version of a message that a page showed."""

    queue: str
    key: str
    version: int


async def apply(store: AsyncStore, verb: Verb, seen: SeenMessage, *, error: str | None = None) -> bool:
    """False: the message has changed since then, or is leased."""
    queue, key, version = seen
    match verb:
        case Verb.DELIVER:
            return await store.run(store.messages.edit(queue, key, _DUE, version=version)) is Edited.UPDATED
        case Verb.BURY:
            bury = store.messages.bury_by_key(queue, key, error=error, version=version)
            return await store.run(bury) is Edited.UPDATED
        case Verb.DROP:
            return await store.run(store.messages.drop(queue, key, version=version, unless_leased=True))


async def advance(store: AsyncStore, job: BulkJob) -> BulkJob | None:
    """Apply one page of matches. None: another process has done this step."""
    try:
        progress = await _change_page(store, job)
    except TarryError as failure:
        _log.warning("bulk job %d failed: %s", job.id, failure)
        progress = BulkProgress(state=BulkState.FAILED, reason=str(failure))
    return await store.run(store.search.save_bulk(job.id, progress, step=job.step))


async def _change_page(store: AsyncStore, job: BulkJob) -> BulkProgress:
    hits = await find(store, job.search, job.queues, limit=PAGE, start=Start(live=job.after))
    changed = 0
    for hit in hits.rows:
        # A ready message is due already. A new due time would move it behind this page, and the job would find it again.
        is_applicable = hit.state is State.DELAYED if job.verb is Verb.DELIVER else hit.state in LIVE
        seen = SeenMessage(hit.queue, hit.key, hit.version)
        changed += is_applicable and await apply(store, job.verb, seen, error=job.error)
    counts, after = (changed, len(hits.rows) - changed), hits.next_live
    if after is None:
        return BulkProgress(*counts, after, BulkState.DONE)
    if job.changed + job.skipped + len(hits.rows) >= MOST:
        reason = f"a job changes at most {MOST:,} messages: start it again for the rest"
        return BulkProgress(*counts, after, BulkState.DONE, reason)
    return BulkProgress(*counts, after)


class BulkJobs:
    """Starts bulk jobs and runs them in this process. If the process stops, a sweeper continues them."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(
        self, verb: Verb, query: str, queues: Sequence[str], *, by: str, error: str | None = None
    ) -> BulkJob:
        search = self._store.search
        recent = await self._store.run(search.bulk_jobs())
        if sum(job.is_running for job in recent) >= RUNNING:
            raise InvalidState(f"{RUNNING} jobs are running", hint="wait until one is done, or cancel it")
        job = await self._store.run(search.start_bulk(verb, query, queues, started_by=by, error=error))
        task = asyncio.create_task(self._run(job), name=f"tarry-bulk-{job.id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return job

    async def cancel(self, job: int) -> None:
        progress = BulkProgress(state=BulkState.CANCELLED)
        await self._store.run(self._store.search.save_bulk(job, progress))

    async def _run(self, job: BulkJob) -> None:
        current: BulkJob | None = job
        try:
            while current is not None and current.is_running:
                current = await advance(self._store, current)
        except TarryError as error:
            _log.info("bulk job %d is left to a sweeper: %s", job.id, error)
