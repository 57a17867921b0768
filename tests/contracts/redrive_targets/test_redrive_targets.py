"""Redrives to another queue: a change of two queues at once, which not every store has."""

from __future__ import annotations

from typing import Any

import pytest

from tarry import Queue
from tarry.app import App
from tarry.core.dead_letters.redrive import RedrivePhase, RedriveState
from tarry.core.errors import UnknownQueue
from tests.contracts.dead_letters.test_redrive_jobs import dead, finish
from tests.kit.steps import numbers, seen, take


def test_every_letter_lives_in_the_other_queue_and_both_journals_know_it(app: App, queue: Queue[Any]) -> None:
    other = app.queue(f"{queue.name}-other")
    app.queues.create(other.name)
    dead(queue, 2)
    old = {letter.key: letter.version for letter in queue.dead_letters.list()}
    redrive = queue.dead_letters.start_redrive(target=other.name)
    finish(redrive)
    job = app.redrives.get(redrive.id).job
    assert (job.state, job.target, job.redriven) == (RedriveState.DONE, other.name, 2)
    assert (numbers(app, queue), numbers(app, other)) == ((0, 0, 0, 0), (0, 2, 0, 0))
    for key, version in old.items():
        stored = seen(other, key)
        assert (stored.attempt, stored.origin) == (0, version)
        came = app.store.run(app.store.journal.timeline(other.name, key))[-1]
        origin = {"from_version": version, "from_queue": queue.name, "job": job.id}
        assert (came.kind.value, came.detail) == ("offered", origin)
        went = app.store.run(app.store.journal.timeline(queue.name, key))[-1]
        assert (went.kind.value, went.version) == ("discarded", version)
        assert went.detail == {"redriven_to": other.name, "job": job.id}


def test_a_key_that_is_live_there_stays_dead_here(app: App, queue: Queue[Any]) -> None:
    other = app.queue(f"{queue.name}-other")
    names = dead(queue, 2)
    other.offer(names[0], "mine")
    queue.offer(names[1], "live here, which does not matter")
    redrive = queue.dead_letters.start_redrive(target=other.name)
    finish(redrive)
    assert (redrive.job.redriven, redrive.job.skipped) == (1, 1)
    assert [letter.key for letter in queue.dead_letters.list()] == [names[0]]


def test_canaries_are_judged_in_the_other_queue(app: App, queue: Queue[Any]) -> None:
    other = app.queue(f"{queue.name}-other")
    app.queues.create(other.name)
    dead(queue, 3)
    redrive = queue.dead_letters.start_redrive(target=other.name, canary=1)
    assert redrive.advance().phase is RedrivePhase.VERDICT
    take(other).bury("again")
    assert (redrive.advance().state, redrive.job.redriven) == (RedriveState.PAUSED, 1)


def test_their_own_queue_as_the_target_is_no_other_queue(queue: Queue[Any]) -> None:
    dead(queue, 1)
    redrive = queue.dead_letters.start_redrive(target=queue.name)
    finish(redrive)
    assert (redrive.job.target, redrive.job.redriven) == (None, 1)


def test_an_unknown_target_is_an_error_and_a_deleted_one_ends_the_job(app: App, queue: Queue[Any]) -> None:
    dead(queue, 2)
    with pytest.raises(UnknownQueue):
        queue.dead_letters.start_redrive(target="no-such-queue")
    app.queues.create(f"{queue.name}-gone")
    redrive = queue.dead_letters.start_redrive(target=f"{queue.name}-gone")
    app.queues.delete(f"{queue.name}-gone")
    job = redrive.advance()
    assert (job.state, job.reason) == (RedriveState.FAILED, f"the queue {queue.name}-gone was deleted")
    assert len(queue.dead_letters.list()) == 2
