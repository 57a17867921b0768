"""A single offer has a quicker way through its script: it stores what the general way stores, in few commands, and once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from struct import Struct
from typing import Any

import pytest
import redis

from tarry import Message
from tarry.api._sync.queue import Queue
from tarry.app import App
from tarry.core.errors import QueueFull
from tarry.core.journal.events import JournalLevel
from tarry.core.messages.model import Conflict, Draft
from tarry.core.messages.outcomes import Outcome, Settled
from tarry.core.messages.retry import Retry
from tarry.core.settings import QueueSettings
from tarry.storage.redis._sync.store import RedisStore
from tarry.storage.redis.operation import RedisOperation
from tarry.testing import MutableClock
from tests.kit.backends import new_name
from tests.kit.redis_servers import RedisServer, commands_of, queue_key, until
from tests.kit.steps import MINUTE, SECOND

START = datetime(2031, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
COUNTERS = Struct("<ddd")
QUICK = Counter(hmget=1, exists=1, time=1, hset=3, zadd=1, xadd=1, set=1)
"""Settings, waiters and the clock are read; row, payload and counters, place, event and reply are written."""
DRAFTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "later": {"after": MINUTE},
    "at an instant": {"due_at": START + MINUTE},
    "at the end of the calendar": {"due_at": datetime.max.replace(tzinfo=UTC)},
    "with a priority": {"priority": 7},
    "with options": {
        "content_type": "application/json",
        "headers": {"tenant": "é" * 40, "b": ""},
        "lease_for": timedelta(hours=3),
        "max_attempts": 1_000_000,
        "retry": Retry(initial_for=3 * SECOND, factor=1.5),
    },
    "kept": {"conflict": Conflict.keep()},
    "with a generated key": {"fresh": True},
    "with a type": {"type": "t" * 100},
    "in a trace": {"headers": {"traceparent": "00-" + "1" * 32, "tenant": "x"}},
    "debounced": {"conflict": Conflict.debounce(MINUTE), "after": SECOND},
    "without content": {"payload": b""},
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
def app(server: RedisServer) -> Iterator[App]:
    with App(RedisStore(server.url)) as app:  # pyright: ignore[reportArgumentType]
        yield app


@pytest.fixture
def pinned(server: RedisServer) -> Iterator[App]:
    with App(RedisStore(server.url, clock=MutableClock(START))) as app:  # pyright: ignore[reportArgumentType]
        yield app


@pytest.fixture
def queue(app: App) -> Queue[Any]:
    return used_queue(app)


def used_queue(app: App) -> Queue[Any]:
    """The first offer of a priority stores that the priority is used."""
    queue = app.queue(new_name())
    for priority in (0, 7):
        queue.offer(f"first-{priority}", 0, after=MINUTE, priority=priority)
    return queue


@pytest.mark.parametrize("named", [None, "a"])
def test_an_offer_takes_nine_commands_and_one_more_for_a_key_of_the_caller(
    queue: Queue[Any], admin: Any, named: str | None
) -> None:
    queue.offer("to load the script", 1)
    assert commands_of(admin, lambda: queue.offer(named, 1)) == QUICK + Counter(hexists=named is not None)


def stored(admin: Any, app: App, queue: Queue[Any], key: str) -> dict[str, Any]:
    """Everything that belongs to a message, with its version and the id of its event replaced: they are from the clock."""
    q = queue_key(app, queue.name)
    row = admin.hget(f"{q}:rows", key)
    version = row[:16]
    positions = {
        name.removeprefix(q.encode()): [
            (member.replace(version, b"version"), due)
            for member, due in admin.zrange(name, 0, -1, withscores=True)
            if member.startswith(version)
        ]
        for name in admin.scan_iter(f"{q}:*", _type="zset")
    }
    record = admin.hgetall(q)
    id, fields = admin.xrevrange(f"{q}:journal", count=1)[0]
    counters = COUNTERS.unpack(record[b"counters"])
    assert counters[0] == int(version)
    assert b"%d-1" % counters[1] == id
    return {
        "row": row.replace(version, b"version"),
        "payload": admin.hget(f"{q}:payloads", key),
        "positions": {name: members for name, members in positions.items() if members},
        "event": fields[b"e"].replace(version, b"version").replace(queue.name.encode(), b"queue"),
        "unmarked": counters[2],
        "replies": [admin.get(name)[-2:] for name in admin.scan_iter(f"{q}:request:*")],
        "fields": sorted(record),
    }


@pytest.mark.parametrize("case", DRAFTS)
def test_both_ways_store_the_same(pinned: App, admin: Any, case: str) -> None:
    draft = Draft(**{"key": "a", "payload": b"payload", **DRAFTS[case]})
    store: Any = pinned.store
    offers = store.messages._offers
    queues = [used_queue(pinned) for _ in range(2)]
    assert store.run(RedisOperation(lambda: offers.offer_one(queues[0].name, draft))) is Outcome.CREATED
    assert store.run(RedisOperation(lambda: offers.offer(queues[1].name, [draft]))) == [Outcome.CREATED]
    single, general = (stored(admin, pinned, queue, "a") for queue in queues)
    assert single == general


@pytest.mark.parametrize("case", [case for case in DRAFTS if case != "with a generated key"])
def test_an_offer_that_a_batch_repeats_and_one_that_repeats_a_batch_change_nothing(pinned: App, case: str) -> None:
    store: Any = pinned.store
    queue = used_queue(pinned)
    drafts = [Draft(**{"key": key, "payload": b"payload", **DRAFTS[case]}) for key in "ab"]
    store.run(store.messages.offer(queue.name, drafts[0]))
    store.run(store.messages.offer_many(queue.name, drafts[1:]))
    assert store.run(store.messages.offer_many(queue.name, drafts[:1])) == [Outcome.IGNORED]
    assert store.run(store.messages.offer(queue.name, drafts[1])) is Outcome.IGNORED


@pytest.mark.parametrize("journal", JournalLevel)
def test_the_journal_has_what_its_level_demands(app: App, journal: JournalLevel) -> None:
    queue = used_queue(app)
    app.queues.edit(queue.name, journal=journal)
    queue.offer("a", {"b": 1})
    payloads = [event.payload for event in app.store.run(app.store.journal.timeline(queue.name, "a"))]
    assert payloads == {"off": [], "events": [None], "payloads": [b'{"b":1}']}[journal.value]


def test_single_offers_mark_the_journal_so_that_it_stays_bounded(app: App, queue: Queue[Any], admin: Any) -> None:
    q = queue_key(app, queue.name)
    admin.hset(q, "counters", COUNTERS.pack(0, 0, 998))
    for _ in range(3):
        queue.offer(None, 1)
    assert admin.llen(f"{q}:marks") == 1
    assert COUNTERS.unpack(admin.hget(q, "counters"))[2] == 1


def test_a_limit_that_is_set_later_applies_to_single_offers(app: App, queue: Queue[Any]) -> None:
    queue.offer("a", 1)
    app.queues.edit(queue.name, max_depth=3)
    with pytest.raises(QueueFull):
        queue.offer(None, 1)
    assert queue.offer("a", 2) is Outcome.UPDATED


def test_versions_grow_when_the_clock_of_the_server_is_behind(app: App, queue: Queue[Any], admin: Any) -> None:
    q = queue_key(app, queue.name)
    ahead = int(COUNTERS.unpack(admin.hget(q, "counters"))[0]) + 10**12
    admin.hset(q, "counters", COUNTERS.pack(ahead, ahead, 0))
    for key in "ab":
        queue.offer(key, 1)
    assert [int(admin.hget(f"{q}:rows", key)[:16]) for key in "ab"] == [ahead + 1, ahead + 2]
    assert [entry[0] for entry in admin.xrange(f"{q}:journal")][-2:] == [b"%d-1" % (ahead + n) for n in (1, 2)]


def test_a_lost_reply_is_given_again_after_the_message_was_delivered_and_acked(app: App, queue: Queue[Any]) -> None:
    """Its row is gone then, so the row cannot show that the offer was made."""
    store: Any = app.store
    connections, lost = store._connections, []

    class LosesOne:
        def execute(self, command: Any) -> Any:
            reply = connections.execute(command)
            if not lost:
                lost.append(reply)
                store._connections = connections
                delivery = queue.try_poll()
                assert delivery is not None
                assert delivery.ack() is Settled.DONE
                raise redis.ConnectionError("the reply was lost")
            return reply

    store._connections = LosesOne()
    assert queue.offer(None, 1) is Outcome.CREATED
    assert lost == [b"c"]
    assert queue.try_poll() is None


def test_a_request_after_the_repeated_one_is_another(app: App, queue: Queue[Any]) -> None:
    queue.offer_many([Message(key="a", payload=1)])
    assert [queue.offer("b", 1), queue.offer("b", 2, after=SECOND), queue.offer(None, 1)] == [
        Outcome.CREATED,
        Outcome.UPDATED,
        Outcome.CREATED,
    ]


def test_an_offer_to_a_renamed_queue_makes_the_queue_of_its_name(
    app: App, queue: Queue[Any], server: RedisServer
) -> None:
    """The store has the id of the queue that had the name."""
    queue.offer("a", 1)
    new = new_name()
    with App(RedisStore(server.url)) as other:  # pyright: ignore[reportArgumentType]
        other.queues.rename(queue.name, new)
    assert queue.offer("a", 2) is Outcome.CREATED
    assert app.queues.counts(new).ready.n == 1


def test_an_offer_wakes_a_consumer_that_sleeps(app: App, queue: Queue[Any], admin: Any) -> None:
    store: Any = app.store
    store._listener.ensure()
    until(lambda: store._listener.is_listening)
    store.run(store.wakeup.announce(queue.name, sleep_for=MINUTE))
    counted = commands_of(admin, lambda: queue.offer("a", 1))
    assert counted["publish"] == 1
    assert admin.hgetall(f"{queue_key(app, queue.name)}:waiters") == {}
    assert commands_of(admin, lambda: queue.offer(None, 1)) == QUICK


def test_a_queue_that_was_never_used_is_offered_to(app: App) -> None:
    queue = app.queue(new_name())
    app.queues.create(queue.name, QueueSettings(max_depth=1))
    assert queue.offer(None, 1) is Outcome.CREATED
