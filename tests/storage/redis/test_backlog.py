"""Scripts do the same work beside many messages as beside few, and no script reads a collection of messages as a whole."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import redis

from tarry import Message
from tarry.api._sync.queue import Queue
from tarry.app import App
from tarry.storage.redis._sync.store import RedisStore
from tests.kit.backends import new_name
from tests.kit.redis_servers import RedisServer, commands_of
from tests.kit.steps import HOUR, MINUTE, SECOND, numbers, take

BACKLOG = 6_000
"""Of each kind; a script moves or returns at most a thousand."""
CALLS: dict[str, Callable[[App, Queue[Any], Any], Any]] = {
    "offer": lambda app, queue, held: queue.offer("new", 1, priority=9),
    "offer of a live key": lambda app, queue, held: queue.offer("a", 2, priority=9),
    "offer of a generated key": lambda app, queue, held: queue.offer(None, 1, priority=9),
    "offer of ten": lambda app, queue, held: queue.offer_many([Message(payload=n) for n in range(10)]),
    "poll": lambda app, queue, held: queue.try_poll(),
    "poll of ten": lambda app, queue, held: queue.try_poll_many(10),
    "poll of a type": lambda app, queue, held: queue.try_poll(type="t"),
    "ack": lambda app, queue, held: held.ack(),
    "ack of ten": lambda app, queue, held: queue.leases.ack(held),
    "nack": lambda app, queue, held: held.nack("x"),
    "touch": lambda app, queue, held: held.touch(),
    "release": lambda app, queue, held: held.release(),
    "bury": lambda app, queue, held: held.bury("x"),
    "read": lambda app, queue, held: queue.read("a"),
    "edit": lambda app, queue, held: queue.edit("a", priority=8),
    "drop": lambda app, queue, held: queue.drop("a"),
    "counts": lambda app, queue, held: app.queues.counts(queue.name),
    "announce": lambda app, queue, held: app.store.run(app.store.wakeup.announce(queue.name, sleep_for=MINUTE)),
    "pause": lambda app, queue, held: app.queues.pause(queue.name),
}


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    server = RedisServer("--appendfsync", "no")
    yield server
    server.close()


@pytest.fixture(scope="module")
def app(server: RedisServer) -> Iterator[App]:
    with App(RedisStore(server.url)) as app:  # pyright: ignore[reportArgumentType]
        yield app


def filled(app: App, n: int) -> Queue[Any]:
    """A queue with so many messages that are leased, dead, ready and delayed, and ten ready ones of a higher priority."""
    queue = app.queue(new_name())
    for _ in range(n // 1_000):
        queue.offer_many([Message(payload=0, type="t") for _ in range(1_000)])
        queue.try_poll_many(1_000, lease_for=HOUR)
        queue.offer_many([Message(payload=0) for _ in range(1_000)])
        queue.leases.bury([delivery.lease_id for delivery in queue.try_poll_many(1_000)])
    for _ in range(n // 1_000):
        queue.offer_many([Message(payload=0, type="t") for _ in range(1_000)])
        queue.offer_many([Message(payload=0, after=HOUR) for _ in range(1_000)])
    queue.offer_many([Message(key=key, payload=0, priority=9) for key in "abcdefghijkl"])
    queue.offer_many([Message(payload=0, type="t") for _ in range(3)])
    assert min(numbers(app, queue)) >= n
    return queue


@pytest.fixture(scope="module")
def measured(app: App, server: RedisServer) -> dict[str, list[Counter[str]]]:
    """The commands of each call, beside few messages and beside many."""
    with redis.Redis(port=server.port) as admin:
        counted: dict[str, list[Counter[str]]] = {name: [] for name in CALLS}
        for n in (0, 0, BACKLOG):  # the first time loads the scripts
            queue = filled(app, n)
            for name, call in CALLS.items():
                held = take(queue) if name in ("ack", "nack", "touch", "release", "bury") else None
                if name == "ack of ten":
                    queue.offer_many([Message(payload=n, priority=9) for n in range(10)])
                    held = [delivery.lease_id for delivery in queue.try_poll_many(10)]
                queue.offer("a", name, priority=9, lease_for=SECOND)
                counted[name].append(commands_of(admin, partial(call, app, queue, held)))
        return counted


@pytest.mark.parametrize("name", CALLS)
def test_a_call_takes_the_same_commands_beside_many_messages_as_beside_few(
    measured: dict[str, list[Counter[str]]], name: str
) -> None:
    _, few, many = measured[name]
    assert few == many


LUA = sorted(Path(str(files("tarry.storage.redis"))).rglob("*.lua"))
CALL = re.compile(r"call\('(\w+)',\s*([^,)]+)(.*)")
WHOLE = {"HGETALL", "HKEYS", "HVALS", "SMEMBERS", "LRANGE"}
"""Commands that read everything that a key has."""
BOUNDED = {
    "ZRANGEBYSCORE": "'LIMIT'",
    "ZREVRANGEBYSCORE": "'LIMIT'",
    "ZRANGEBYLEX": "'LIMIT'",
    "XRANGE": "'COUNT'",
    "XREVRANGE": "'COUNT'",
    "HSCAN": "'COUNT'",
}
OF_MESSAGES = ("rows", "payloads", "due", "leased", "letters", "dead", "journal'", "marks", "type", "set", "view")


@pytest.mark.parametrize("path", LUA, ids=lambda path: f"{path.parts[-3]}/{path.stem}")
def test_a_script_reads_no_collection_of_messages_as_a_whole(path: Path) -> None:
    for command, key, rest in CALL.findall(path.read_text()):
        assert command not in ("KEYS", "SCAN", "SORT", "FLUSHDB", "FLUSHALL")
        if command in WHOLE:
            assert not key.strip().startswith("q ..") or ":waiters" in key or "results" in key, (command, key)
            assert not any(word in key for word in OF_MESSAGES), (command, key)
        if command in BOUNDED:
            of_one_tick = "':ticks'" in key and "tick.tick, tick.tick" in rest
            assert BOUNDED[command] in rest or of_one_tick, (command, key, rest)
        if command in ("ZRANGE", "ZREVRANGE"):
            assert "-1" not in re.sub(r"- 1", "", rest), (command, key, rest)
