"""A single poll and a single ack have a quicker way through their scripts: they store what the general way stores."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
import redis

from tarry.api._sync.queue import Queue
from tarry.app import App
from tarry.core.journal.events import JournalLevel
from tarry.core.messages.model import Draft, LeaseId, PollOptions
from tarry.core.messages.outcomes import Settled
from tarry.storage.redis._sync.store import RedisStore
from tarry.storage.redis.messages.steps import OnePoll
from tarry.storage.redis.operation import RedisOperation
from tarry.storage.redis.rows import row_of
from tarry.testing import MutableClock
from tests.kit.backends import new_name
from tests.kit.redis_servers import RedisServer, commands_of, queue_key
from tests.kit.steps import MINUTE, SECOND, take

START = datetime(2031, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
POLL = Counter(hmget=1, time=1, zrangebyscore=2, hget=2, zrem=1, zadd=1, hset=2, xadd=1, set=1)
ACK = Counter(hmget=1, time=1, hget=1, zrem=1, hdel=2, xadd=1, hset=1, set=1)
NONCE = "5a" * 16
DRAFTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "with a priority": {"priority": 7},
    "planned": {"due_at": START - MINUTE},
    "with a lease time": {"lease_for": timedelta(hours=3)},
    "with its last attempt": {"max_attempts": 1},
    "with a type": {"type": "t" * 100},
    "in a trace": {"headers": {"traceparent": "00-" + "1" * 32, "tenant": "x"}},
    "with a key of 200 characters": {"key": "{é}\n" * 50},
    "without content": {"payload": b""},
}
OPTIONS = {
    "defaults": PollOptions(),
    "a consumer": PollOptions(consumer="é" * 60),
    "a lease time": PollOptions(lease_for=MINUTE),
}


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    server = RedisServer("--appendfsync", "always")
    yield server
    server.close()


@pytest.fixture
def admin(server: RedisServer) -> Iterator[Any]:
    with redis.Redis(port=server.port) as admin:
        yield admin


@pytest.fixture
def clock() -> MutableClock:
    return MutableClock(START)


@pytest.fixture
def app(server: RedisServer, clock: MutableClock) -> Iterator[App]:
    with App(RedisStore(server.url, clock=clock)) as app:  # pyright: ignore[reportArgumentType]
        yield app


def poll(app: App, queue: Queue[Any], options: PollOptions, *, single: bool) -> Any:
    messages: Any = app.store.messages
    params = {"nonce": NONCE, "lease_for": options.lease_for, "consumer": options.consumer}
    if single:
        params_of_poll = OnePoll(queue.name, now=messages._now(), **params)
        make = lambda: messages._with_params(queue.name, "messages/poll_one", params_of_poll, (), create=True)  # noqa: E731
    else:
        params["lease_for"] = None if options.lease_for is None else options.lease_for // timedelta(microseconds=1)
        make = lambda: messages._in_queue(queue.name, "messages/poll", n=1, **params)  # noqa: E731
    store: Any = app.store
    return store.run(RedisOperation(make))


def ack(app: App, queue: Queue[Any], lease_id: LeaseId, *, single: bool) -> Settled:
    store: Any = app.store
    messages = store.messages
    if single:
        return store.run(messages.ack(queue.name, [lease_id]))[0]
    return store.run(RedisOperation(lambda: messages._settle(queue.name, "messages/ack", [lease_id])))[0]


def stored(admin: Any, app: App, queue: Queue[Any], version: bytes) -> dict[str, Any]:
    """Everything that the queue has, with what comes from the clock of the server replaced."""
    q = queue_key(app, queue.name)

    def same(value: bytes) -> bytes:
        return value.replace(version, b"version").replace(queue.name.encode(), b"queue")

    keys = {name.removeprefix(q.encode()): name for name in admin.scan_iter(f"{q}:*")}
    record = admin.hgetall(q)
    del record[b"counters"], record[b"name"]
    entries = admin.xrange(f"{q}:journal")
    return {
        "sets": {
            rest: [(same(member), score) for member, score in admin.zrange(name, 0, -1, withscores=True)]
            for rest, name in keys.items()
            if admin.type(name) == b"zset"
        },
        "rows": {key: same(row) for key, row in admin.hgetall(f"{q}:rows").items()},
        "payloads": admin.hgetall(f"{q}:payloads"),
        "events": [same(fields[b"e"]) for _, fields in entries],
        # Without the number of the request, which is less than 128.
        "replies": sorted(same(admin.get(name)[2:]) for rest, name in keys.items() if b":request:" in rest),
        "record": {name: value for name, value in record.items() if name != b"created_at"},
    }


def without_tokens(state: dict[str, Any]) -> dict[str, Any]:
    """A token is a hash of the version, so the two queues have different ones."""
    tokens = {key: row_of(b"0" * 16 + row[7:]).lease_id("").token.hex.encode() for key, row in state["rows"].items()}
    return {**state, "rows": {key: row.replace(tokens[key], b"token") for key, row in state["rows"].items()}}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("case", DRAFTS)
def test_both_ways_store_the_same(app: App, admin: Any, case: str, options: str) -> None:
    store: Any = app.store
    draft = Draft(**{"key": "a", "payload": b"payload", **DRAFTS[case]})
    leased, acked = [], []
    for single in (True, False):
        queue = app.queue(new_name())
        app.queues.create(queue.name)
        store.run(store.messages.offer(queue.name, draft))
        version = admin.hget(f"{queue_key(app, queue.name)}:rows", draft.key)[:16]
        keys, rows, payloads = poll(app, queue, OPTIONS[options], single=single)
        assert (keys, payloads) == ([draft.key.encode()], [draft.payload])
        assert rows == [admin.hget(f"{queue_key(app, queue.name)}:rows", draft.key)]
        leased.append(without_tokens(stored(admin, app, queue, version)))
        assert ack(app, queue, row_of(rows[0]).lease_id(draft.key), single=single) is Settled.DONE
        acked.append(stored(admin, app, queue, version))
    assert leased[0] == leased[1]
    assert acked[0] == acked[1]
    assert acked[0]["rows"] == acked[0]["payloads"] == {}
    assert not any(acked[0]["sets"].values())


def test_a_poll_takes_twelve_commands_and_an_ack_nine(app: App, admin: Any) -> None:
    queue = app.queue(new_name())
    for _ in range(2):
        queue.offer(None, 1)
    first = queue.try_poll()
    assert first is not None
    first.ack()
    held: list[Any] = []
    assert commands_of(admin, lambda: held.append(queue.try_poll())) == POLL
    assert commands_of(admin, lambda: held[0].ack()) == ACK


def test_an_ack_after_the_lease_has_ended_leaves_nothing(app: App, admin: Any, clock: MutableClock) -> None:
    """A poll has moved the message back to those that wait, and leased one of a higher priority instead."""
    queue = app.queue(new_name())
    queue.offer("a", 1, priority=3)
    delivery = take(queue, lease_for=SECOND)
    queue.offer("b", 1, priority=9)
    clock.advance(2 * SECOND)
    assert take(queue).key == "b"
    q = queue_key(app, queue.name)
    assert admin.zcard(f"{q}:due:3") == admin.zcard(f"{q}:leased") == 1
    assert commands_of(admin, lambda: delivery.ack()) == ACK + Counter(zrem=1)
    assert delivery.ack() is Settled.GONE
    assert not admin.exists(f"{q}:due:3")
    assert set(admin.hkeys(f"{q}:rows")) == set(admin.hkeys(f"{q}:payloads")) == {b"b"}


@pytest.mark.parametrize("verb", ["poll", "ack"])
def test_about_every_thousandth_event_is_marked_on_both_ways(app: App, admin: Any, verb: str) -> None:
    """The quicker way ends one event before a mark: the general one writes the mark and begins to count anew."""
    queue = app.queue(new_name())
    for key in "abcd":
        queue.offer(key, 1)
    held = queue.try_poll_many(2) if verb == "ack" else []
    q = queue_key(app, queue.name)
    layout = struct.Struct("<ddd")

    def call() -> None:
        if verb == "ack":
            assert held.pop().ack() is Settled.DONE
        else:
            take(queue)

    version, event, _ = layout.unpack(admin.hget(q, "counters"))
    admin.hset(q, "counters", layout.pack(version, event, 998))
    assert commands_of(admin, call) == {"poll": POLL, "ack": ACK}[verb]
    assert layout.unpack(admin.hget(q, "counters"))[2] == 999
    assert not admin.exists(f"{q}:marks")
    call()
    _, event, unmarked = layout.unpack(admin.hget(q, "counters"))
    assert unmarked == 0
    assert admin.lrange(f"{q}:marks", 0, -1) == [b"%d" % event]
    assert admin.xinfo_stream(f"{q}:journal")["last-generated-id"] == b"%d-1" % event
    kinds = [kind.value for _, kind in sorted((each.id, each.kind) for each in events(app, queue))][-2:]
    assert kinds == {"poll": ["leased"] * 2, "ack": ["acked"] * 2}[verb]


def events(app: App, queue: Queue[Any]) -> list[Any]:
    journal: Any = app.store.journal
    return [event for key in "abcd" for event in app.store.run(journal.timeline(queue.name, key))]


def test_single_polls_return_what_expired_before_what_waits(app: App, clock: MutableClock) -> None:
    queue = app.queue(new_name())
    queue.offer("a", 1)
    first = queue.try_poll(lease_for=SECOND)
    queue.offer("b", 1)
    clock.advance(2 * SECOND)
    assert first is not None
    assert [delivery and (delivery.key, delivery.attempt) for delivery in (queue.try_poll(), queue.try_poll())] == [
        ("a", 2),
        ("b", 1),
    ]
    assert first.ack() is Settled.LEASE_LOST


def test_a_stale_token_and_an_unknown_key_are_refused(app: App) -> None:
    queue = app.queue(new_name())
    queue.offer("a", 1)
    assert queue.try_poll() is not None
    assert ack(app, queue, LeaseId("a", uuid4()), single=True) is Settled.LEASE_LOST
    assert ack(app, queue, LeaseId("b", uuid4()), single=True) is Settled.GONE
    kinds = [event.kind.value for event in app.store.run(app.store.journal.timeline(queue.name, "a"))]
    assert sorted(kinds) == ["leased", "offered", "refused"]


@pytest.mark.parametrize("journal", JournalLevel)
def test_the_journal_has_what_its_level_demands(app: App, journal: JournalLevel) -> None:
    queue = app.queue(new_name())
    queue.offer("a", {"b": 1})
    app.queues.edit(queue.name, journal=journal)
    delivery = queue.try_poll()
    assert delivery is not None
    delivery.ack()
    events = app.store.run(app.store.journal.timeline(queue.name, "a"))
    assert len(events) == (1 if journal is JournalLevel.OFF else 3)


def test_a_paused_queue_gives_nothing_to_a_single_poll(app: App) -> None:
    queue = app.queue(new_name())
    queue.offer("a", 1)
    app.queues.pause(queue.name)
    assert queue.try_poll() is None


@pytest.mark.parametrize("verb", ["poll", "ack"])
def test_a_lost_reply_is_given_again(app: App, verb: str) -> None:
    store: Any = app.store
    queue = app.queue(new_name())
    for key in "ab":
        queue.offer(key, 1)
    held = queue.try_poll() if verb == "ack" else None
    connections, lost = store._connections, []

    class LosesOne:
        def execute(self, command: Any) -> Any:
            reply = connections.execute(command)
            if not lost:
                lost.append(reply)
                store._connections = connections
                raise redis.ConnectionError("the reply was lost")
            return reply

    store._connections = LosesOne()
    if held is not None:
        assert held.ack() is Settled.DONE
    else:
        delivery = queue.try_poll()
        assert delivery is not None
        assert (delivery.key, delivery.attempt, delivery.ack()) == ("a", 1, Settled.DONE)
    assert lost
    assert app.queues.counts(queue.name).ready.n == 1
