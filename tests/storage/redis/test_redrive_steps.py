"""A redrive to another queue on Redis is several scripts: a process may end before any of them, or come too late with one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tarry import Message, Queue
from tarry.app import App
from tarry.core.dead_letters.redrive import WALK, RedriveState
from tarry.core.errors import InvalidState
from tarry.storage.redis._sync.store import RedisStore
from tarry.storage.redis.operation import RedisOperation
from tests.contracts.dead_letters.test_redrive_jobs import dead
from tests.kit.backends import new_name
from tests.kit.redis_servers import RedisServer, first_scripts

STEP = (
    "dead_letters/jobs", "queues/name", "queues/name", "dead_letters/scan", "dead_letters/copy", "dead_letters/receive",
    "dead_letters/moved", "dead_letters/save_job",
)  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    server = RedisServer("--appendfsync", "always")
    yield server
    server.close()


@pytest.fixture
def app(server: RedisServer) -> Iterator[App]:
    with App(RedisStore(server.url)) as app:  # pyright: ignore[reportArgumentType]
        yield app


@pytest.fixture
def queues(app: App) -> tuple[Queue[Any], Queue[Any], int, list[str]]:
    """A queue with dead letters, another one, and the job that moves them there."""
    queue, other = app.queue(new_name()), app.queue(new_name())
    app.queues.create(other.name)
    names = dead(queue, 3)
    return queue, other, queue.dead_letters.start_redrive(target=other.name).id, names


def received(queue: Queue[Any]) -> list[str]:
    deliveries = queue.try_poll_many(99)
    for delivery in deliveries:
        delivery.ack()
    return sorted(delivery.key for delivery in deliveries)


def test_a_queue_keeps_the_steps_of_the_thousand_latest_jobs(app: App, queues: Any) -> None:
    queue, *_ = queues
    store: Any = app.store
    step = {"versions": [], "step": 1, "chosen": "chosen"}

    def make_step(job: int, **others: Any) -> Any:
        op = store.dead_letters._in_queue(queue.name, "dead_letters/redrive", job=str(job), **step | others)
        return store.run(RedisOperation(lambda: op))

    for job in range(1_000):
        make_step(job)
    make_step(0, step=2)
    make_step(1_000)
    assert make_step(2, chosen="again")[0] == b"chosen", "it is kept, and repeated as it was"
    assert make_step(0, step=2, chosen="again")[0] == b"chosen"
    assert make_step(1, chosen="again")[0] == b"again", "the job whose step was the first"


def test_a_step_has_these_scripts(app: App, queues: Any) -> None:
    *_, job, _ = queues
    calls = first_scripts(app, app.store.dead_letters.advance_redrive(job), 99)
    assert tuple(call.script.name for call in calls) == STEP


@pytest.mark.parametrize("executed", range(len(STEP) + 1))
def test_a_process_that_ends_in_the_middle_loses_no_letter_and_doubles_none(
    app: App, server: RedisServer, queues: Any, executed: int
) -> None:
    queue, other, job, names = queues
    first_scripts(app, app.store.dead_letters.advance_redrive(job), executed)
    keys = received(other)  # acked at once: what is offered again would be seen again
    with App(RedisStore(server.url)) as successor:  # pyright: ignore[reportArgumentType]
        while (done := successor.store.run(successor.store.dead_letters.advance_redrive(job))) is not None:
            assert done.state in (RedriveState.RUNNING, RedriveState.DONE)
        assert (successor.redrives.get(job).job.redriven, queue.dead_letters.list()) == (3, [])
    assert sorted(keys + received(other)) == sorted(names)


@pytest.mark.parametrize("late", range(STEP.index("dead_letters/receive"), len(STEP)))
def test_a_script_that_comes_after_the_end_has_no_effect(app: App, server: RedisServer, queues: Any, late: int) -> None:
    queue, other, job, names = queues
    calls = first_scripts(app, app.store.dead_letters.advance_redrive(job), late)
    assert calls[-1].script.name == STEP[late]
    with App(RedisStore(server.url)) as successor:  # pyright: ignore[reportArgumentType]
        while successor.store.run(successor.store.dead_letters.advance_redrive(job)) is not None:
            pass
    assert received(other) == sorted(names)
    store: Any = app.store
    store._reply(calls[-1])
    assert (received(other), queue.dead_letters.list()) == ([], [])
    assert app.redrives.get(job).job.state is RedriveState.DONE


@pytest.mark.parametrize("executed", range(STEP.index("dead_letters/receive"), len(STEP)))
def test_a_job_that_is_paused_after_its_process_ended_doubles_no_letter(
    app: App, server: RedisServer, executed: int
) -> None:
    queue, other = app.queue(new_name()), app.queue(new_name())
    app.queues.create(other.name)
    names = dead(queue, 103)  # one step moves 100
    job = queue.dead_letters.start_redrive(target=other.name).id
    first_scripts(app, app.store.dead_letters.advance_redrive(job), executed)
    keys = received(other)
    with App(RedisStore(server.url)) as successor:  # pyright: ignore[reportArgumentType]
        successor.redrives.get(job).pause()
        successor.redrives.get(job).resume()
        while successor.store.run(successor.store.dead_letters.advance_redrive(job)) is not None:
            pass
        assert (successor.redrives.get(job).job.redriven, queue.dead_letters.list()) == (103, [])
    assert sorted(keys + received(other) + received(other)) == sorted(names)


@pytest.mark.parametrize("executed", range(STEP.index("dead_letters/receive"), len(STEP)))
def test_after_a_cancel_a_letter_is_dead_or_redriven_and_a_late_step_moves_none(
    app: App, server: RedisServer, queues: Any, executed: int
) -> None:
    queue, other, job, names = queues
    calls = first_scripts(app, app.store.dead_letters.advance_redrive(job), executed)
    with App(RedisStore(server.url)) as successor:  # pyright: ignore[reportArgumentType]
        begun = executed > STEP.index("dead_letters/receive")
        if begun:  # the step had redriven all there was
            with pytest.raises(InvalidState):
                successor.redrives.get(job).cancel()
        else:
            successor.redrives.get(job).cancel()
        assert successor.redrives.get(job).job.redriven == (3 if begun else 0)
    store: Any = app.store
    store._reply(calls[-1])
    left = [letter.key for letter in queue.dead_letters.list()]
    assert (sorted(left), received(other)) == (([], sorted(names)) if begun else (sorted(names), []))


def test_a_job_finds_the_letters_that_fit_behind_more_than_one_step_walks(app: App) -> None:
    queue = app.queue(new_name())
    for first in range(0, WALK + 1_000, 1_000):
        queue.offer_many([Message(key=str(first + n), payload=0) for n in range(1_000)])
        queue.leases.bury([delivery.lease_id for delivery in queue.try_poll_many(1_000)])
    queue.offer_many([Message(key=key, payload=0, type="t") for key in "abc"])
    queue.leases.bury([delivery.lease_id for delivery in queue.try_poll_many(3)])
    job = queue.dead_letters.start_redrive(type="t")
    steps = [app.store.run(app.store.dead_letters.advance_redrive(job.id)) for _ in range(3)]
    assert steps[2] is None, "it had ended before"
    assert app.store.run(app.store.dead_letters.redrive_job(job.id)).state is RedriveState.DONE  # pyright: ignore[reportOptionalMemberAccess]
    assert received(queue) == ["a", "b", "c"]
