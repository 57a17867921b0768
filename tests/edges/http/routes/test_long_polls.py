"""Clients that wait, leave, and are there when the broker stops: on real sockets."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tarry.app import AsyncApp
from tarry.core.settings import StoreSettings
from tarry.edges.http import long_poll
from tarry.edges.http.long_poll import ClientPoll
from tarry.edges.http.settings import BrokerSettings
from tarry.http import Client
from tarry.storage.memory import AsyncMemoryStore, MemoryStore
from tests.kit.blocking import Loop
from tests.kit.brokers import broker_on
from tests.kit.sleepers import until, waiting

TIMEOUT_S = 30


@pytest.fixture
def behind() -> AsyncApp:
    """On the real clock: waiting is about it."""
    settings = StoreSettings(create_queues=False, scan_every=timedelta(milliseconds=20))
    return AsyncApp(AsyncMemoryStore(MemoryStore(settings=settings)))


@pytest.fixture
def client(broker_url: str) -> Iterator[Client]:
    with Client(broker_url) as client:
        client.queues.create("q")
        yield client


def sent(url: str, body: dict[str, Any], opened: list[socket.socket] | None = None) -> socket.socket:
    """A poll as a bare socket, which can be left at any moment: by way of `opened` also before this returns."""
    where = urlsplit(url)
    data = json.dumps(body).encode()
    head = f"POST /v1/queues/q/messages:poll HTTP/1.1\r\nHost: {where.netloc}\r\nContent-Length: {len(data)}\r\n\r\n"
    raw = socket.create_connection((where.hostname, where.port))
    if opened is not None:
        opened.append(raw)
    raw.sendall(head.encode() + data)
    return raw


def leases(client: Client) -> int:
    return client.queues.counts("q").leased.n


def test_a_waiting_client_gets_what_comes(client: Client, broker_url: str) -> None:
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(client.queue("q").poll, timedelta(seconds=TIMEOUT_S))
        client.queue("q").offer("a", 1)
        delivery = waiting.result(TIMEOUT_S)
    assert delivery is not None
    assert (delivery.key, delivery.attempt) == ("a", 1)
    assert delivery.lease_until - delivery.leased_at == timedelta(seconds=30)


def test_nothing_in_time_is_204(client: Client, broker_url: str) -> None:
    response = httpx.post(f"{broker_url}/v1/queues/q/messages:poll", json={"wait": 0.05})
    assert (response.status_code, response.content) == (204, b"")


def test_a_client_that_left_while_it_waited_gets_nothing_leased(
    behind: AsyncApp, client: Client, broker_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = threading.Event()
    disconnect = long_poll._disconnect

    async def watched(request: Any) -> None:
        await disconnect(request)
        left.set()

    monkeypatch.setattr(long_poll, "_disconnect", watched)
    raw = sent(broker_url, {"wait": 60})
    raw.close()
    assert left.wait(TIMEOUT_S)
    client.queue("q").offer("a", 1)
    delivery = client.queue("q").try_poll()
    assert delivery is not None
    assert (delivery.key, delivery.attempt, leases(client)) == ("a", 1, 1)


def test_a_client_that_leaves_during_the_hand_over_has_its_lease_given_back(
    client: Client, broker_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leaves when its messages are leased already, and before they are sent."""
    raw: list[socket.socket] = []
    given_back = threading.Event()
    lease, release = ClientPoll.lease, ClientPoll.release

    async def leased_and_left(poll: ClientPoll) -> None:
        await lease(poll)
        raw[0].close()
        await poll.disconnect

    async def noticed(poll: ClientPoll) -> None:
        await release(poll)
        given_back.set()

    monkeypatch.setattr(ClientPoll, "lease", leased_and_left)
    monkeypatch.setattr(ClientPoll, "release", noticed)
    client.queue("q").offer("a", 1)
    sent(broker_url, {"wait": 60}, raw)
    assert given_back.wait(TIMEOUT_S)
    monkeypatch.setattr(ClientPoll, "lease", lease)
    delivery = client.queue("q").try_poll()
    assert delivery is not None
    assert (delivery.key, delivery.attempt) == ("a", 1)


def test_a_key_may_have_only_so_many_polls_waiting(behind: AsyncApp, http_loop: Loop) -> None:
    settings = BrokerSettings(anonymous=True, polls_per_key=1)
    with broker_on(behind, http_loop, settings) as url:
        raw = sent(url, {"wait": 60})
        refused = None
        while refused is None or refused.status_code == 204:  # until the first is counted
            refused = httpx.post(f"{url}/v1/queues/q/messages:poll", json={"wait": 0.01})
        raw.close()
    assert refused.status_code == 429


def test_a_broker_that_stops_responds_to_waiting_polls(behind: AsyncApp, http_loop: Loop) -> None:
    with broker_on(behind, http_loop, BrokerSettings(anonymous=True)) as url:
        polls = [sent(url, {"wait": 60}) for _ in range(20)]
        httpx.post(f"{url}/v1/queues/q/messages", json={"payload": 1, "key": "x", "after": "1h"})
        until(lambda: waiting(behind.store.wakeup.wait_queue, "q") == 20)
    responses = [raw.recv(4096) for raw in polls]
    for raw in polls:
        raw.close()
    assert {response.split(b"\r\n")[0] for response in responses} == {b"HTTP/1.1 204 No Content"}
