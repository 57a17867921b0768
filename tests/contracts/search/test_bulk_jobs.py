"""Bulk jobs as they are stored, in every kind of store: one process does a step, and a job that was ended stays so."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tarry.app import App
from tarry.core.messages.model import MessagePosition
from tarry.core.search.bulk import BulkJob, BulkProgress, BulkState, Verb
from tests.kit.clocks import START, WatchedClock

pytestmark = pytest.mark.where_the_messages_are
POSITION = MessagePosition(START, 7)


def start(app: App, query: str = "state:delayed") -> BulkJob:
    return app.store.run(app.store.search.start_bulk(Verb.DROP, query, ["orders", "mails"], started_by="ana"))


def save(app: App, job: BulkJob, progress: BulkProgress, *, step: int | None = None) -> BulkJob | None:
    return app.store.run(app.store.search.save_bulk(job.id, progress, step=step))


def jobs(app: App, **options: object) -> list[int]:
    return [job.id for job in app.store.run(app.store.search.bulk_jobs(**options))]  # type: ignore[arg-type]


def test_a_job_is_read_as_it_was_started(app: App) -> None:
    job = start(app)
    assert (job.verb, job.query, job.queues, job.started_by) == (Verb.DROP, "state:delayed", ("orders", "mails"), "ana")
    assert (job.state, job.changed, job.skipped, job.after, job.step) == (BulkState.RUNNING, 0, 0, None, 0)
    assert app.store.run(app.store.search.bulk_jobs(job=job.id)) == [job]
    assert app.store.run(app.store.search.bulk_jobs(job=job.id + 1_000)) == []


def test_a_step_is_added_once(app: App) -> None:
    job = start(app)
    saved = save(app, job, BulkProgress(3, 1, POSITION), step=0)
    assert saved is not None
    assert (saved.changed, saved.skipped, saved.after, saved.step) == (3, 1, POSITION, 1)
    assert save(app, job, BulkProgress(3, 1, POSITION), step=0) is None, "another process has done it"
    ended = save(app, job, BulkProgress(2, 0, None, BulkState.DONE, "the end"), step=1)
    assert ended is not None
    assert (ended.state, ended.changed, ended.after, ended.reason) == (BulkState.DONE, 5, POSITION, "the end")
    assert ended.ended_at is not None


def test_a_cancelled_job_counts_its_last_step_and_stays_cancelled(app: App) -> None:
    job = start(app)
    assert save(app, job, BulkProgress(state=BulkState.CANCELLED)) is not None
    last = save(app, job, BulkProgress(4, 0, POSITION), step=0)
    assert last is not None
    assert (last.state, last.changed) == (BulkState.CANCELLED, 4)
    assert save(app, job, BulkProgress(state=BulkState.CANCELLED)) is None, "it has ended already"


def test_idle_jobs_are_those_without_progress(app: App, clock: WatchedClock) -> None:
    first, second = start(app), start(app)
    assert jobs(app)[:2] == [second.id, first.id]
    clock.advance(timedelta(minutes=1))
    save(app, second, BulkProgress(1), step=0)
    idle = jobs(app, idle_for=timedelta(seconds=30))
    assert first.id in idle
    assert second.id not in idle
    save(app, first, BulkProgress(state=BulkState.DONE), step=0)
    assert first.id not in jobs(app, idle_for=timedelta(seconds=30))
    assert jobs(app, limit=1) == [second.id]


def test_jobs_that_ended_long_ago_are_forgotten(app: App, clock: WatchedClock) -> None:
    old, running = start(app), start(app)
    save(app, old, BulkProgress(state=BulkState.DONE), step=0)
    clock.advance(timedelta(days=31))
    new = start(app)
    save(app, new, BulkProgress(state=BulkState.DONE), step=0)
    assert app.store.run(app.store.search.forget_bulk()) >= 1
    left = jobs(app, limit=1_000)
    assert old.id not in left
    assert {running.id, new.id} <= set(left)
    assert start(app).id > new.id, "the number of a forgotten job is not given again"
