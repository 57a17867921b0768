"""A change of schedules on Redis is carried out in steps: a process may end before any of them, or come too late with one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from tarry import Queue
from tarry.app import App
from tarry.core.cron.model import ScheduleChange, ScheduleSpec, ScheduleState
from tarry.core.cron.schedule_changes import Current, install
from tarry.core.cron.schedule_types import Periodic
from tarry.storage.redis._sync.store import RedisStore
from tests.kit.backends import new_name
from tests.kit.clocks import START, WatchedClock
from tests.kit.cron import scheduler, ticks_of, verdicts
from tests.kit.redis_servers import RedisServer, first_scripts, until
from tests.kit.steps import HOUR, take

REPLACED = ("queues/info", "cron/begin", "cron/withdraw", "cron/advance", "cron/offer", "cron/advance")
"""The scripts of a change that withdraws messages of one queue and makes messages in another."""


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    server = RedisServer("--appendfsync", "always")
    yield server
    server.close()


@pytest.fixture
def clock() -> WatchedClock:
    return WatchedClock()


@pytest.fixture
def app(server: RedisServer, clock: WatchedClock) -> Iterator[App]:
    with App(RedisStore(server.url, clock=clock)) as app:  # pyright: ignore[reportArgumentType]
        yield app


def replacement(app: App, name: str, queue: str) -> ScheduleChange:
    """The change that moves the schedule to this queue, with a new payload."""
    state: ScheduleState = app.schedules.get(name)
    spec = ScheduleSpec(
        name=name, schedule=Periodic(HOUR), queue=queue, payload=b'"new"', content_type="application/json"
    )
    now = app.store.run(app.store.queues.now())
    current = Current(name, state, now, app.store.run(app.store.cron.waiting_ticks(name)))
    change = install(current, spec, None)
    assert change is not None
    return change


def apply(app: App, name: str, queue: str) -> Any:
    return app.store.cron.apply_changes([replacement(app, name, queue)])


@pytest.fixture
def queues(app: App, clock: WatchedClock) -> tuple[str, Queue[Any], Queue[Any]]:
    """A schedule, its queue with the message of a tick that has come, and another queue."""
    name, old, new = new_name(), app.queue(new_name()), app.queue(new_name())
    app.queues.create(new.name)
    app.queues.get(new.name)  # from now on the app knows its id
    app.cron().install_periodic(name, HOUR, queue=old.name, payload="old")
    clock.advance(HOUR)
    return name, old, new


def seen(app: App, name: str, queue: Queue[Any]) -> tuple[list[datetime], set[str], list[tuple[float, str, str]]]:
    """The ticks that became messages of the new configuration, their payloads, and the ledger."""
    deliveries = queue.try_poll_many(9)
    return (
        [datetime.fromisoformat(delivery.headers["tarry-tick"]) for delivery in deliveries],
        {delivery.payload for delivery in deliveries},
        verdicts(app.schedules.history(name)),
    )


EXPECTED = ([START + HOUR], {"new"}, [(1, "planned", "on_time"), (2, "planned", "on_time")])


def test_it_has_these_scripts(app: App, queues: Any) -> None:
    name, _, new = queues
    calls = first_scripts(app, apply(app, name, new.name), 99)
    assert tuple(call.script.name for call in calls) == REPLACED


@pytest.mark.parametrize("executed", range(len(REPLACED) + 1))
@pytest.mark.parametrize("completed_by", ["a reader", "another change"])
def test_a_process_that_ends_in_the_middle_leaves_nothing_half_done(
    app: App, server: RedisServer, queues: Any, clock: WatchedClock, executed: int, completed_by: str
) -> None:
    name, old, new = queues
    first_scripts(app, apply(app, name, new.name), executed)
    with App(RedisStore(server.url, clock=clock)) as other:  # pyright: ignore[reportArgumentType]
        if executed <= 1:  # nothing has begun
            assert app.schedules.get(name).spec.queue == old.name
            return
        if completed_by == "a reader":
            assert other.schedules.get(name).spec.queue == new.name
        else:
            other.schedules.trigger(name)
            assert take(other.queue(new.name)).ack().value == "done"
            return
        assert seen(other, name, other.queue(new.name)) == EXPECTED
        assert old.try_poll() is None


@pytest.mark.parametrize("late", range(2, len(REPLACED)))
def test_a_script_that_comes_after_the_end_has_no_effect(
    app: App, server: RedisServer, queues: Any, clock: WatchedClock, late: int
) -> None:
    """A process was stopped before one of its scripts; others completed the change, acked the message, and changed on."""
    name, old, new = queues
    calls = first_scripts(app, apply(app, name, new.name), late)
    assert calls[-1].script.name == REPLACED[late]
    with App(RedisStore(server.url, clock=clock)) as other:  # pyright: ignore[reportArgumentType]
        assert other.schedules.get(name).spec.queue == new.name
        assert ticks_of(other.queue(new.name)) == [START + HOUR]
        for _ in range(2):  # the results of complete changes are removed by the next ones
            other.schedules.trigger(name)
            take(other.queue(new.name)).ack()
    before = verdicts(app.schedules.history(name))
    store: Any = app.store
    store._reply(calls[-1])
    assert (ticks_of(old), ticks_of(new)) == ([], [])
    assert verdicts(app.schedules.history(name)) == before


def test_a_change_that_lost_its_process_is_completed_though_no_one_reads_its_schedule(
    app: App, server: RedisServer, queues: Any, clock: WatchedClock
) -> None:
    name, _, new = queues
    first_scripts(app, apply(app, name, new.name), 2)
    store: Any = app.store
    registry = "tarry:{registry}"
    packed = store._client.execute_command("ZRANGE", f"{registry}:pending", 0, 0)
    assert len(packed) == 1

    def is_complete() -> bool:
        with App(RedisStore(server.url, clock=clock)) as other:  # pyright: ignore[reportArgumentType]
            scheduler(other).run_once()
        return not store._client.execute_command("ZCARD", f"{registry}:pending")

    until(is_complete)
    assert ticks_of(new) == [START + HOUR]


def test_a_tick_that_is_forgotten_while_its_message_is_withdrawn_stops_no_change(app: App, queues: Any) -> None:
    name, _, new = queues
    first_scripts(app, apply(app, name, new.name), 3)
    assert app.store.run(app.store.cron.forget_ticks(START + 9 * HOUR)) > 0
    assert app.schedules.get(name).spec.queue == new.name


def test_no_tick_goes_to_a_queue_whose_deletion_was_interrupted(
    app: App, server: RedisServer, queues: Any, clock: WatchedClock
) -> None:
    name, old, _ = queues
    app.queues.get(old.name)
    calls = first_scripts(app, app.store.queues.delete(old.name, force=True), 1)
    assert calls[-1].script.name == "queues/unregister"
    with App(RedisStore(server.url, clock=clock)) as other:  # pyright: ignore[reportArgumentType]
        other.schedules.trigger(name)
        assert take(other.queue(old.name)).ack().value == "done"


def test_messages_that_were_leased_stay_with_their_consumer(app: App, queues: Any) -> None:
    name, old, new = queues
    held = take(old)
    assert app.store.run(apply(app, name, new.name)) == [True]
    assert held.ack().value == "done"
    assert ticks_of(new) == []
