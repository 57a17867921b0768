"""Bulk jobs: run by the process that started them, continued by a sweeper if that one ends, cancelled in between."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tarry import Message
from tarry.app import AsyncApp
from tarry.core.errors import InvalidState
from tarry.core.search.bulk import BulkJob, BulkState, Verb
from tarry.services.bulk import PAGE, RUNNING, BulkJobs, advance
from tarry.testing import MutableClock, async_memory_app
from tests.kit.steps import MINUTE

LATER = timedelta(hours=1)


@pytest.fixture
def app(pinned_clock: MutableClock) -> AsyncApp:
    return async_memory_app(pinned_clock)


async def offer(app: AsyncApp, count: int) -> None:
    messages = [Message(key=f"m-{n:04}", payload=n, after=LATER + timedelta(seconds=n)) for n in range(count)]
    await app.queue("orders").offer_many(messages)


async def started(app: AsyncApp, verb: Verb, query: str = "") -> BulkJob:
    return await app.store.run(app.store.search.start_bulk(verb, query, ["orders"], started_by="ana"))


async def stored(app: AsyncApp, job: BulkJob) -> BulkJob:
    return (await app.store.run(app.store.search.bulk_jobs(job=job.id)))[0]


async def test_a_job_is_run_by_the_process_that_started_it(app: AsyncApp) -> None:
    await offer(app, PAGE + 50)
    job = await BulkJobs(app.store).start(Verb.DROP, "queue:orders", ["orders"], by="ana")
    await next(task for task in asyncio.all_tasks() if task.get_name() == f"tarry-bulk-{job.id}")
    done = await stored(app, job)
    assert (done.state, done.changed, done.skipped) == (BulkState.DONE, PAGE + 50, 0)
    assert (await app.queues.counts("orders")).delayed.n == 0


async def test_a_sweeper_continues_a_job_whose_process_has_ended(app: AsyncApp, pinned_clock: MutableClock) -> None:
    await offer(app, 2 * PAGE + 50)
    job = await started(app, Verb.BURY)
    assert await advance(app.store, job) is not None
    sweeper = app.sweeper()
    assert (await sweeper.run_once()).changed == 0, "its process may still run"
    pinned_clock.advance(MINUTE)
    report = await sweeper.run_once()
    assert (report.changed, report.did_something) == (PAGE + 50, True)
    done = await stored(app, job)
    assert (done.state, done.changed) == (BulkState.DONE, 2 * PAGE + 50)
    assert (await app.queues.counts("orders")).dead.n == 2 * PAGE + 50


async def test_a_step_that_was_not_stored_is_repeated_without_harm(app: AsyncApp) -> None:
    """Its process ended between the changes and the save."""
    await offer(app, 30)
    job = await started(app, Verb.DELIVER)
    assert await advance(app.store, job) is not None
    assert await advance(app.store, job) is None, "the step was done"
    done = await stored(app, job)
    assert (done.changed, (await app.queues.counts("orders")).ready.n) == (30, 30)


async def test_a_cancelled_job_ends_after_its_page(app: AsyncApp) -> None:
    await offer(app, 2 * PAGE)
    job = await started(app, Verb.DROP)
    await BulkJobs(app.store).cancel(job.id)
    ended = await advance(app.store, job)
    assert ended is not None
    assert (ended.state, ended.changed) == (BulkState.CANCELLED, PAGE)
    assert (await app.queues.counts("orders")).delayed.n == PAGE


async def test_a_job_that_fails_has_its_reason(app: AsyncApp) -> None:
    job = await started(app, Verb.DROP, "colour:red")
    failed = await advance(app.store, job)
    assert failed is not None
    assert failed.state is BulkState.FAILED
    assert (failed.reason or "").startswith("colour: there is no such qualifier (there are id, queue, key, ")


async def test_only_a_few_jobs_run_at_once(app: AsyncApp) -> None:
    for _ in range(RUNNING):
        await started(app, Verb.DROP)
    with pytest.raises(InvalidState, match="jobs are running"):
        await BulkJobs(app.store).start(Verb.DROP, "", ["orders"], by="ana")
