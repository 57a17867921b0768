"""Live events over real sockets: access, positions, and what becomes of clients that leave or do not read."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import cycle
from typing import Any

import httpx
import psycopg
import pytest

import tarry
from tarry.app import AsyncApp
from tarry.core.journal.events import JournalLevel
from tarry.core.messages.model import Failure
from tarry.core.settings import StoreSettings
from tarry.edges.http.settings import BrokerSettings
from tarry.http import Client
from tarry.storage.memory import AsyncMemoryStore, MemoryStore
from tests.kit.blocking import Loop
from tests.kit.brokers import broker_on
from tests.kit.sleepers import until
from tests.kit.sse import EventSource, ServerSentEvent

PROMPT_S = 8
"""Answers under way may take ten: streams must not. Idle, it takes less than one."""
OPEN = BrokerSettings(anonymous=True)
QUICK = BrokerSettings(keys_cached_for=timedelta(0))


@pytest.fixture
def behind() -> AsyncApp:
    settings = StoreSettings(scan_every=timedelta(milliseconds=20))
    return AsyncApp(AsyncMemoryStore(MemoryStore(settings=settings)))


@pytest.fixture
def client(broker_url: str) -> Iterator[Client]:
    with Client(broker_url) as client:
        client.queues.create("q")
        yield client


def kinds_and_keys(events: list[ServerSentEvent]) -> list[tuple[str, Any]]:
    return [(event.kind, event.data["key"]) for event in events]


def test_events_are_streamed_as_they_happen(client: Client, broker_url: str) -> None:
    with EventSource(broker_url).until_hello() as source:
        assert (source.status, source.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        client.queue("q").offer("a", {"secret": 1})
        delivery = client.queue("q").try_poll()
        assert delivery is not None
        delivery.ack()
        events = source.some(3)
    assert kinds_and_keys(events) == [("offered", "a"), ("leased", "a"), ("acked", "a")]
    assert events[0].data["queue"] == "q"
    assert "payload_base64" not in events[0].data
    assert "secret" not in str(events)


def test_payloads_of_journaled_messages_are_not_streamed(client: Client, broker_url: str) -> None:
    client.queues.create("p", tarry.QueueSettings(journal=JournalLevel.PAYLOADS))
    with EventSource(broker_url).until_hello() as source:
        client.queue("p").offer("a", "secret", type="t", headers={"token": "secret"})
        event = source.next()
    assert (event.kind, event.data["size"]) == ("offered", 6)
    assert "secret" not in str(event)


def test_topics_are_queues_and_kinds(client: Client, broker_url: str) -> None:
    with (
        EventSource(broker_url, "?queue=r&queue=s").until_hello() as queues,
        EventSource(broker_url, "?kind=leased&kind=acked").until_hello() as kinds,
    ):
        for name in ("q", "r", "s"):
            client.queue(name).offer(name, 1)
        delivery = client.queue("q").try_poll()
        assert delivery is not None
        assert kinds_and_keys(queues.some(4)) == [
            ("queue_created", None),
            ("offered", "r"),
            ("queue_created", None),
            ("offered", "s"),
        ]
        assert kinds_and_keys(kinds.some(1)) == [("leased", "q")]
    response = httpx.get(f"{broker_url}/v1/events", params={"kind": "nonsense"})
    assert response.status_code == 422


def test_a_client_that_reconnects_gets_the_events_it_missed(client: Client, broker_url: str) -> None:
    with EventSource(broker_url).until_hello() as source:
        client.queue("q").offer_many([tarry.Message(key=f"k{n}", payload=n) for n in range(5)])
        first = source.some(2)
    client.queue("q").offer("missed", 1)
    with EventSource(broker_url, last_id=source.last_id) as again:
        rest = again.some(4)
        client.queue("q").offer("live", 1)
        rest += again.some(1)
    assert [key for _, key in kinds_and_keys(first + rest)] == ["k0", "k1", "k2", "k3", "k4", "missed", "live"]
    with EventSource(broker_url, f"?after={first[0].id}") as by_query:
        assert kinds_and_keys(by_query.some(1)) == kinds_and_keys(first[1:])


def test_a_client_that_got_no_event_reconnects_at_its_position(client: Client, broker_url: str) -> None:
    with EventSource(broker_url, "?queue=other").until_hello() as source:
        assert source.last_id
    client.queue("other").offer("missed", 1)
    with EventSource(broker_url, "?queue=other", last_id=source.last_id) as again:
        assert [key for _, key in kinds_and_keys(again.some(2))] == [None, "missed"]


def test_a_ping_moves_the_position_of_a_client_that_wants_little(behind: AsyncApp, http_loop: Loop) -> None:
    settings = BrokerSettings(anonymous=True, ping_every=timedelta(milliseconds=20), replay_limit=5)
    with broker_on(behind, http_loop, settings) as url, Client(url) as client:
        with EventSource(url, "?kind=buried").until_hello() as source:
            for n in range(6):
                before = source.last_id
                client.queue("q").offer(f"k{n}", 1)
                while source.last_id == before:
                    source.until_ping()
        client.queue("q").offer("missed", 1)
        with EventSource(url, last_id=source.last_id) as again:
            assert kinds_and_keys(again.some(1)) == [("offered", "missed")]


@pytest.mark.parametrize("last_id", ["nonsense", "1~1:1:", "x" * 30_000], ids=["malformed", "elsewhere", "long"])
def test_a_position_that_is_none_is_a_gap(client: Client, broker_url: str, last_id: str) -> None:
    with EventSource(broker_url, last_id=last_id) as source:
        event = source.next()
        assert (event.kind, event.data["reason"]) == ("gap", "unknown")
        client.queue("q").offer("a", 1)
        assert kinds_and_keys(source.some(1)) == [("offered", "a")]


def test_too_far_back_is_a_gap(behind: AsyncApp, http_loop: Loop) -> None:
    settings = BrokerSettings(anonymous=True, replay_limit=3)
    with broker_on(behind, http_loop, settings) as url, Client(url) as client:
        with EventSource(url).until_hello() as source:
            pass
        client.queue("q").offer_many([tarry.Message(key=f"k{n}", payload=n) for n in range(5)])
        with EventSource(url, last_id=source.last_id) as again:
            event = again.next()
            assert (event.kind, event.data["reason"]) == ("gap", "too_far")
            client.queue("q").offer("a", 1)
            assert kinds_and_keys(again.some(1)) == [("offered", "a")]


class TestAccess:
    @pytest.fixture
    def url(self, behind: AsyncApp, http_loop: Loop) -> Iterator[str]:
        with broker_on(behind, http_loop, QUICK) as url:
            yield url

    def test_a_key_sees_its_own_queues_only(self, url: str, key: Callable[..., str]) -> None:
        mine, all_ = key("read", queues=("own", "own-*")), key("produce")
        with EventSource(url, key=mine).until_hello() as source, Client(url, all_) as client:
            for name in ("foreign", "own", "own-2", "owner"):
                client.queue(name).offer(name, 1)
            events = source.some(4)
            assert {event.data["queue"] for event in events} == {"own", "own-2"}
            again = EventSource(url, key=mine, last_id=events[0].id)
            assert {event.data["queue"] for event in again.some(3)} == {"own", "own-2"}
            again.close()

    def test_a_stream_of_a_foreign_queue_is_refused_whether_it_exists_or_not(
        self, url: str, key: Callable[..., str]
    ) -> None:
        headers = {"authorization": f"Bearer {key('read', queues=('own',))}"}
        httpx.post(f"{url}/v1/queues/there/messages", json={"payload": 1}, headers=headers)
        for name in ("there", "nowhere"):
            assert httpx.get(f"{url}/v1/events?queue={name}", headers=headers).status_code == 403

    def test_a_stream_ends_when_its_key_is_revoked(self, url: str, behind: AsyncApp, key: Callable[..., str]) -> None:
        mine, admin = key("read"), key("admin")
        with EventSource(url, key=mine).until_hello() as source:
            revoked = httpx.delete(f"{url}/v1/keys/{mine.split('_')[1]}", headers={"authorization": f"Bearer {admin}"})
            assert revoked.status_code == 200
            assert source.ends()
        with EventSource(url, key=mine, last_id=source.last_id) as refused:
            assert refused.status == 401

    def test_a_key_may_have_only_so_many_streams(self, behind: AsyncApp, http_loop: Loop) -> None:
        settings = BrokerSettings(anonymous=True, streams_per_key=1)
        with broker_on(behind, http_loop, settings) as url:
            with EventSource(url).until_hello():
                assert httpx.get(f"{url}/v1/events").status_code == 429

            def free() -> bool:
                with EventSource(url) as source:
                    return source.status == 200

            until(free)


def figure(url: str, name: str) -> float:
    (value,) = re.findall(rf"^{name} (\S+)$", httpx.get(f"{url}/metrics").text, re.MULTILINE)
    return float(value)


def fail(client: Client, n: int) -> list[str]:
    """So many messages, each with an event of 8 KB: it takes some to fill the buffers of the system."""
    queue, keys = client.queue("q"), [f"k{i}" for i in range(n)]
    queue.offer_many([tarry.Message(key=key, payload=1) for key in keys])
    held = queue.try_poll_many(n)
    queue.leases.nack([Failure(delivery.lease_id, "x" * 8_000, timedelta(hours=1)) for delivery in held])
    return sorted(delivery.key for delivery in held)


def test_a_client_that_does_not_read_is_cut_off_and_the_others_are_not(behind: AsyncApp, http_loop: Loop) -> None:
    settings = BrokerSettings(anonymous=True, stream_buffer=200)
    with (
        broker_on(behind, http_loop, settings) as url,
        Client(url) as client,
        EventSource(url, "?kind=nacked").until_hello() as reader,
        EventSource(url, "?kind=nacked", small=True) as sleeper,
    ):
        until(lambda: figure(url, "tarry_streams") == 2)
        rounds = 0
        while not figure(url, "tarry_streams_cut_off_total"):
            assert rounds < 100, "it was never cut off"
            failed = fail(client, 100)
            assert sorted(key for _, key in kinds_and_keys(reader.some(100))) == failed
            rounds += 1
        assert sleeper.ends()
        assert fail(client, 1) == [key for _, key in kinds_and_keys(reader.some(1))]


def test_a_broker_that_is_signalled_to_stop_ends_soon_also_with_clients_that_do_not_read(database: str) -> None:
    command = [sys.executable, "-m", "tarry", "--dsn", database, "serve", "--port", "0", "--no-access-log"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    assert process.stderr is not None
    url = next(match[1].decode() for line in process.stderr if (match := re.search(rb"listening on (http\S+)", line)))
    try:
        sources = [EventSource(url).until_hello() for _ in range(20)]
        sleeper = EventSource(url, small=True)
        with Client(url) as client:
            for _ in range(10):
                fail(client, 100)
        process.terminate()
        assert process.wait(PROMPT_S) == 0
        assert all(source.ends() for source in [*sources, sleeper])
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
    for source in [*sources, sleeper]:
        source.close()


class TestOnPostgres:
    @pytest.fixture
    def url(self, database: str, http_loop: Loop) -> Iterator[str]:
        app = http_loop.run(_connected(database))
        with broker_on(app, http_loop, OPEN) as url:
            yield url
        http_loop.run(app.close())

    def test_an_event_that_commits_late_is_streamed(self, url: str, database: str) -> None:
        with tarry.connect(database) as app, psycopg.connect(database) as slow:
            app.queues.create("q")
            with EventSource(url).until_hello() as source:
                app.queue("q").offer("slow", 1, conn=slow)
                app.queue("q").offer("quick", 1)
                assert kinds_and_keys(source.some(1)) == [("offered", "quick")]
                slow.commit()
                assert kinds_and_keys(source.some(1)) == [("offered", "slow")]

    @pytest.fixture
    def other_url(self, database: str, http_loop: Loop) -> Iterator[str]:
        app = http_loop.run(_connected(database))
        with broker_on(app, http_loop, OPEN) as url:
            yield url
        http_loop.run(app.close())

    def test_going_from_broker_to_broker_loses_and_doubles_nothing_while_writers_run(
        self, url: str, other_url: str, database: str
    ) -> None:
        brokers = cycle((other_url, url))
        keys: list[str] = []
        with tarry.connect(database) as app:
            app.queues.create("q")
            source = EventSource(url, "?kind=offered").until_hello()
            expected = {f"{number}-{n}" for number in range(3) for n in range(60)}

            def write(number: int) -> None:
                with psycopg.connect(database) as conn:
                    for n in range(60):
                        app.queue("q").offer(f"{number}-{n}", 1, conn=conn)
                        if n % 4 == 3:
                            conn.commit()

            writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
            for writer in writers:
                writer.start()
            while len(keys) < len(expected):
                keys += [event.data["key"] for event in source.some(min(7, len(expected) - len(keys)))]
                source.close()
                source = EventSource(next(brokers), "?kind=offered", last_id=source.last_id)
            for writer in writers:
                writer.join()
            app.queue("q").offer("end", 1)
            assert kinds_and_keys(source.some(1)) == [("offered", "end")]
            source.close()
        assert sorted(keys) == sorted(expected)


async def _connected(dsn: str) -> AsyncApp:
    return await tarry.connect_async(dsn)
