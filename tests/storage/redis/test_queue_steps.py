"""Queues that are renamed or deleted in several steps: large ones completely, and after a process that ended in between."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from tarry import Message
from tarry.app import App
from tarry.core.errors import InvalidState, UnknownQueue
from tarry.core.messages.outcomes import Settled
from tarry.storage.redis._sync.store import RedisStore
from tarry.storage.redis.operation import Op, RedisOperation
from tarry.testing import MutableClock
from tests.kit.backends import new_name
from tests.kit.clocks import START
from tests.kit.redis_servers import RedisServer, first_scripts, queue_key
from tests.kit.steps import HOUR, numbers, take

MESSAGES = 12_000
"""More than HSCAN walks over when the messages of its first buckets are gone."""


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    server = RedisServer("--appendfsync", "no")
    yield server
    server.close()


@pytest.fixture
def app(server: RedisServer) -> Iterator[App]:
    with App(RedisStore(server.url)) as app:  # pyright: ignore[reportArgumentType]
        yield app


def left_of(server: RedisServer, q: str) -> set[str]:
    with redis.Redis(port=server.port, decode_responses=True) as admin:
        keys = {key.removeprefix(q) for key in admin.scan_iter(f"{q}*", count=1_000)}
    return {key for key in keys if not key.startswith(":request:")}


def fill(app: App, queue: str) -> None:
    for first in range(0, MESSAGES, 1_000):
        app.queue(queue).offer_many([Message(key=f"{first + n}", payload=0, after=HOUR) for n in range(1_000)])


def test_a_large_queue_is_deleted_completely(app: App, server: RedisServer) -> None:
    name = new_name()
    fill(app, name)
    q = queue_key(app, name)
    app.queues.delete(name, force=True)
    assert left_of(server, q) == {":journal"}, "which expires"


def test_a_sweeper_completes_the_deletion_of_a_large_queue(app: App, server: RedisServer) -> None:
    name = new_name()
    fill(app, name)
    q = queue_key(app, name)
    first_scripts(app, app.store.queues.delete(name, force=True), 12)
    assert ":rows" in left_of(server, q)
    removed = app.store.run(app.store.maintenance.remove_leftovers())
    assert 0 < removed < MESSAGES
    assert left_of(server, q) == {":journal"}
    assert app.store.run(app.store.maintenance.remove_leftovers()) == 0


def test_a_lease_is_settled_after_a_rename_that_was_not_completed(app: App) -> None:
    name, new = new_name(), new_name()
    queue = app.queue(name)
    queue.offer("a", 1)
    held = take(queue)
    calls = first_scripts(app, app.store.queues.rename(name, new), 3)
    assert [call.script.name for call in calls][-2:] == ["queues/rename", "queues/unregister"]
    assert held.ack() is Settled.DONE
    assert numbers(app, app.queue(new)) == (0, 0, 0, 0)


def test_a_lease_is_gone_after_a_deletion_that_was_not_completed(app: App) -> None:
    name = new_name()
    queue = app.queue(name)
    queue.offer("a", 1)
    held = take(queue)
    calls = first_scripts(app, app.store.queues.delete(name, force=True), 1)
    assert [call.script.name for call in calls] == ["queues/delete", "queues/unregister"]
    assert held.ack() is Settled.GONE
    with pytest.raises(UnknownQueue):
        app.queues.get(name)


def test_a_batch_of_settles_that_a_rename_divides_has_the_result_of_each(app: App) -> None:
    name = new_name()
    queue = app.queue(name)
    queue.offer_many([Message(payload=n) for n in range(1_500)])
    lease_ids = [delivery.lease_id for delivery in queue.try_poll_many(1_500)]
    store: Any = app.store
    ack = store.messages.ack(name, lease_ids).start()

    def renamed_after_the_first_script() -> Op[list[Settled]]:
        reply = yield next(ack)
        yield from store.queues.rename(name, new_name()).start()
        call = ack.send(reply)
        while True:
            reply = yield call
            try:
                call = ack.send(reply)
            except StopIteration as stop:
                return stop.value

    assert store.run(RedisOperation(renamed_after_the_first_script)) == [Settled.DONE] * 1_500


def test_counts_are_exact_when_more_leases_have_ended_than_one_script_moves(server: RedisServer) -> None:
    clock = MutableClock(START)
    with App(RedisStore(server.url, clock=clock)) as app:  # pyright: ignore[reportArgumentType]
        queue = app.queue(new_name())
        for _ in range(3):
            queue.offer_many([Message(payload=n) for n in range(1_000)])
        assert len(queue.try_poll_many(2_500)) == 2_500
        clock.advance(HOUR)
        assert numbers(app, queue) == (0, 3_000, 0, 0)


def test_a_name_is_free_after_a_rename_that_ended_before_the_queue_had_it(app: App, server: RedisServer) -> None:
    name, new = new_name(), new_name()
    app.queue(name).offer("b", 1)
    calls = first_scripts(app, app.store.queues.rename(name, new), 3)
    assert [call.script.name for call in calls][-2:] == ["queues/reserve", "queues/rename"]
    app.queue(new).offer("a", 1)
    assert [take(app.queue(each)).key for each in (name, new)] == ["b", "a"]
    with App(RedisStore(server.url)) as other:  # pyright: ignore[reportArgumentType]
        assert numbers(other, other.queue(new)) == (0, 0, 1, 0)


def test_a_rename_fails_when_another_process_has_needed_its_name_before_the_queue_had_it(app: App) -> None:
    name, new = new_name(), new_name()
    app.queue(name).offer("a", 1)
    store: Any = app.store
    rename = store.queues.rename(name, new).start()
    call = next(rename)
    while call.script.name != "queues/rename":
        call = rename.send(store._reply(call))
    app.queue(new).offer("b", 1)

    def rest() -> Op[Any]:
        return (yield from _continued(rename, call))

    with pytest.raises(InvalidState, match="exists already"):
        store.run(RedisOperation(rest))
    assert [app.queue(each).try_poll_many(2)[0].key for each in (name, new)] == ["a", "b"]


def test_a_name_that_a_queue_had_between_two_renames_is_free(app: App) -> None:
    name, between, new = new_name(), new_name(), new_name()
    app.queue(name).offer("a", 1)
    calls = first_scripts(app, app.store.queues.rename(name, between), 4)
    assert calls[-1].script.name == "queues/unregister"
    app.queues.rename(between, new)
    for other in (name, between):
        app.queues.create(other)
        assert numbers(app, app.queue(other)) == (0, 0, 0, 0)
    assert numbers(app, app.queue(new)) == (0, 1, 0, 0)
    assert {name, between, new} <= {info.name for info in app.queues.list()}


def _continued(op: Op[Any], call: Any) -> Op[Any]:
    while True:
        reply = yield call
        try:
            call = op.send(reply)
        except StopIteration as stop:
            return stop.value
