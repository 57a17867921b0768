"""An answer that is lost after its commit, at every place where it can be: nothing is done a second time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import psycopg
import pytest

from tarry.app import AsyncApp
from tarry.core.messages.model import Draft
from tarry.core.security.idempotency import IdempotencyKey, StoredResponse
from tarry.core.settings import QueueSettings, RetrySettings, StoreSettings
from tarry.edges.http.settings import BrokerSettings
from tarry.http import Client
from tarry.storage.http._sync.connections import ConnectionPool
from tarry.storage.http.protocol import Address, HttpRequest, HttpResponse
from tarry.storage.postgres._sync import runner
from tarry.storage.postgres._sync.store import PostgresStore
from tarry.storage.postgres.store import AsyncPostgresStore
from tests.kit.blocking import Loop
from tests.kit.brokers import broker_on

IMPATIENT = StoreSettings(connection_retry=RetrySettings(retries=3), create_queues=False)


@pytest.fixture
def store(database: str) -> Iterator[PostgresStore]:
    store = PostgresStore(database)
    store.run(store.queues.create("q", QueueSettings(), exist_ok=False))
    yield store
    store.close()


def finish(store: PostgresStore) -> int:
    """As a quick consumer does, before the request is repeated."""
    leases = store.run(store.messages.poll("q", 10, lambda data, _: data))
    store.run(store.messages.ack("q", [lease.lease_id for lease in leases]))
    return len(leases)


def events(store: PostgresStore, key: str) -> list[str]:
    return [event.kind.value for event in store.run(store.journal.timeline("q", key))]


def test_the_database_went_away_after_the_commit(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    check, lost = runner._check_commit, []

    def cut(tag: str | None) -> None:
        check(tag)
        if not lost:
            lost.append(tag)
            assert finish(store) == 1
            raise psycopg.OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(runner, "_check_commit", cut)
    request = IdempotencyKey("", "k", b"x" * 32)
    response = store.run(
        store.security.offer_idempotent(
            "q", Draft("a", b"1"), request, lambda outcome: StoredResponse(201, outcome.value.encode())
        )
    )
    assert (lost, response) == (["COMMIT"], StoredResponse(201, b"created", replayed=True))
    assert events(store, "a") == ["offered", "leased", "acked"]


class Losing(ConnectionPool):
    """The first request is carried out and answered, and the answer is lost; what follows goes to another broker."""

    def __init__(self, store: PostgresStore, first: str, other: str) -> None:
        super().__init__(Address(first, None), 1)
        self._store = store
        self._other = ConnectionPool(Address(other, None), 1)
        self.lost = 0
        self.finished = 0
        self.replayed: list[str | None] = []

    def exchange(self, request: HttpRequest) -> HttpResponse:
        if self.lost:
            response = self._other.exchange(request)
            self.replayed.append(response.header(b"idempotent-replayed"))
            return response
        response = super().exchange(request)
        assert response.status < 300, response.take_body()
        self.lost += 1
        self.finished = finish(self._store)
        raise ConnectionResetError("the broker was killed")

    def close(self) -> None:
        super().close()
        self._other.close()


@pytest.fixture
def brokers(database: str, store: PostgresStore) -> Iterator[tuple[str, str]]:
    loop = Loop()
    stores = [AsyncPostgresStore(database, settings=IMPATIENT) for _ in range(2)]
    for opened in stores:
        loop.run(opened.open())
    settings = BrokerSettings(anonymous=True)
    with (
        broker_on(AsyncApp(stores[0]), loop, settings) as first,
        broker_on(AsyncApp(stores[1]), loop, settings) as second,
    ):
        yield first, second
    for opened in stores:
        loop.run(opened.close())
    loop.stop()


@pytest.fixture
def losing(store: PostgresStore, brokers: tuple[str, str]) -> Losing:
    return Losing(store, *brokers)


@pytest.fixture
def client(brokers: tuple[str, str], losing: Losing) -> Iterator[Client]:
    with Client(brokers[0], settings=IMPATIENT) as client:
        client.store._pool = losing
        yield client


def test_an_offer_is_one_message_though_it_was_finished_before_the_second_try(
    client: Client, losing: Losing, store: PostgresStore
) -> None:
    outcome = client.queue("q").offer("a", 1)
    assert (outcome.value, losing.lost, losing.finished, losing.replayed) == ("created", 1, 1, ["true"])
    assert events(store, "a") == ["offered", "leased", "acked"]
    assert finish(store) == 0


def test_so_is_one_without_a_key(client: Client, losing: Losing, store: PostgresStore) -> None:
    client.queue("q").offer(None, 1)
    assert (losing.finished, finish(store)) == (1, 0)


def test_so_is_each_of_a_batch(client: Client, losing: Losing, store: PostgresStore) -> None:
    from tarry import Message

    outcomes = client.queue("q").offer_many([Message(key=key, payload=1) for key in "aba"])
    assert [outcome.value for outcome in outcomes] == ["superseded", "created", "created"]
    assert (losing.finished, finish(store), losing.replayed) == (2, 0, ["true"])


def test_a_redrive_moves_once(client: Client, losing: Losing, store: PostgresStore) -> None:
    store.run(store.messages.offer("q", Draft("a", b"1", max_attempts=1)))
    (lease,) = store.run(store.messages.poll("q", 1, lambda data, _: data))
    store.run(store.messages.bury("q", [lease.lease_id]))
    assert client.queue("q").dead_letters.redrive() == 1
    assert (losing.finished, losing.replayed) == (1, ["true"])


def test_a_purge_leaves_what_came_after_it(
    client: Client, losing: Losing, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.run(store.messages.offer("q", Draft("before", b"1")))

    def offer_another(_: PostgresStore) -> int:
        store.run(store.messages.offer("q", Draft("after", b"1")))
        return 0

    monkeypatch.setitem(globals(), "finish", offer_another)
    assert client.store.run(client.store.messages.purge("q")) == 1
    assert store.run(store.messages.contains("q", "after"))


def test_a_queue_is_created_and_renamed_once(client: Client, losing: Losing, store: PostgresStore) -> None:
    client.queues.create("new")
    losing.lost = 0
    assert client.queues.rename("new", "newer").name == "newer"
    assert losing.replayed == ["true", "true"]


def test_a_key_that_is_used_again_for_something_else_is_refused(brokers: tuple[str, str]) -> None:
    def offer(url: str, body: Any, **headers: str) -> httpx.Response:
        return httpx.post(f"{url}/v1/queues/q/messages", json=body, headers={"Idempotency-Key": "k", **headers})

    first = offer(brokers[0], {"payload": 1})
    again = offer(brokers[1], {"payload": 1})
    assert (first.status_code, again.status_code, first.json()) == (201, 201, again.json())
    assert (first.headers.get("idempotent-replayed"), again.headers["idempotent-replayed"]) == (None, "true")
    other = offer(brokers[1], {"payload": 2})
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")


def test_a_concurrent_equal_request_is_waited_for_up_to_a_timeout(
    brokers: tuple[str, str], database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first is inside its transaction and does not end: the second gets a retry-after."""
    with psycopg.connect(database) as conn:
        conn.execute(
            "insert into tarry.stored_response values ('', 'k', %s, 201, '', clock_timestamp())",
            (b"x" * 32,),
            binary=True,
        )
        headers = {"Idempotency-Key": "k"}
        held = httpx.post(f"{brokers[0]}/v1/queues/q/messages", json={"payload": 1}, headers=headers, timeout=60)
        assert (held.status_code, held.json()["code"], held.headers["retry-after"]) == (409, "lock_timeout", "1")
        conn.rollback()
    after = httpx.post(f"{brokers[1]}/v1/queues/q/messages", json={"payload": 1}, headers=headers)
    assert (after.status_code, after.headers.get("idempotent-replayed")) == (201, None)
