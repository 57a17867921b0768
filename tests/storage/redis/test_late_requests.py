"""A first try that arrives after its repetition, from a connection that the client gave up: it changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
import redis

from tarry import Message
from tarry.api._sync.queue import Queue
from tarry.app import App
from tarry.core.errors import QueueFull
from tarry.storage.redis._sync.store import RedisStore
from tests.kit.backends import new_name
from tests.kit.redis_servers import RedisServer, commands_of, queue_key
from tests.kit.steps import EMPTY, HOUR, numbers, take


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    server = RedisServer("--appendfsync", "no")
    yield server
    server.close()


@pytest.fixture
def app(server: RedisServer) -> Iterator[App]:
    with App(RedisStore(server.url)) as app:  # pyright: ignore[reportArgumentType]
        yield app


@pytest.fixture
def queue(app: App) -> Queue[Any]:
    queue = app.queue(new_name())
    queue.offer("first", 0)
    take(queue).ack()
    return queue


class DelaysOne:
    """Connections whose first command stays on its way when the connection breaks, until `deliver`."""

    def __init__(self, store: Any) -> None:
        self._store, self._connections = store, store._connections
        self._command: Any = None
        store._connections = self

    def execute(self, command: Any) -> Any:
        self._command = command
        self._store._connections = self._connections
        raise redis.ConnectionError("the connection was given up")

    def deliver(self) -> None:
        with suppress(redis.ResponseError):  # no client reads the reply
            self._connections.execute(self._command)


OFFERS: dict[str, Callable[[Queue[Any]], Any]] = {
    "by key": lambda queue: queue.offer("a", 1),
    "by a generated key": lambda queue: queue.offer(None, 1),
    "with a type": lambda queue: queue.offer("a", 1, type="t"),
    "in a batch": lambda queue: queue.offer_many([Message(payload=1)]),
}


@pytest.mark.parametrize("offer", OFFERS)
def test_an_offer_is_not_made_again_after_its_message_was_acked(app: App, queue: Queue[Any], offer: str) -> None:
    late = DelaysOne(app.store)
    OFFERS[offer](queue)
    late.deliver()
    assert numbers(app, queue) == (0, 1, 0, 0), "as the last request of its slot"
    take(queue).ack()
    late.deliver()
    assert numbers(app, queue) == EMPTY, "as one before the last"
    queue.offer("b", 1)
    assert take(queue).key == "b"


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("there", ["with messages", "without"])
def test_a_poll_leases_nothing_more(app: App, queue: Queue[Any], n: int, there: str) -> None:
    if there == "with messages":
        queue.offer_many([Message(key=key, payload=1) for key in "ab"])
    late = DelaysOne(app.store)
    polled = queue.try_poll_many(n)
    queue.offer("c", 1)
    expected = numbers(app, queue)
    assert expected[2] == len(polled)
    late.deliver()
    assert numbers(app, queue) == expected


def test_an_offer_that_a_full_queue_refused_is_not_made_later(app: App, queue: Queue[Any]) -> None:
    app.queues.edit(queue.name, max_depth=1)
    queue.offer("a", 1)
    late = DelaysOne(app.store)
    with pytest.raises(QueueFull):
        queue.offer("b", 1)
    take(queue).ack()
    late.deliver()
    assert numbers(app, queue) == EMPTY


def test_a_pause_of_the_past_pauses_nothing(app: App, queue: Queue[Any]) -> None:
    late = DelaysOne(app.store)
    app.queues.pause(queue.name)
    app.queues.resume(queue.name)
    late.deliver()
    assert app.queues.get(queue.name).paused_at is None


def test_a_lease_of_the_past_leads_nothing(app: App) -> None:
    """The registry has its own scripts."""
    maintenance: Any = app.store.maintenance
    name = new_name()
    late = DelaysOne(app.store)
    held = app.store.run(maintenance.acquire(name, "me", HOUR))
    assert app.store.run(maintenance.resign(held))
    late.deliver()
    assert app.store.run(maintenance.leader(name)) is None


def test_requests_are_compared_for_two_minutes_after_a_repetition_only(
    app: App, queue: Queue[Any], server: RedisServer
) -> None:
    q = queue_key(app, queue.name)
    with redis.Redis(port=server.port) as admin:
        assert commands_of(admin, lambda: queue.offer("a", 1))["get"] == 0
        DelaysOne(app.store)
        queue.offer("b", 1)
        assert commands_of(admin, lambda: queue.offer("c", 1))["get"] == 1
        repeated_at: Any = admin.hget(q, "repeated_at")
        admin.hset(q, "repeated_at", str(int(repeated_at) - 121_000_000))
        queue.offer("d", 1)
        assert commands_of(admin, lambda: queue.offer("e", 1))["get"] == 0
