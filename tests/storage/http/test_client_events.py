"""Live events in the Python client: they resume at their position, and report a gap where something is missing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import aclosing, closing
from datetime import timedelta
from queue import SimpleQueue
from typing import Any

import pytest

from tarry.app import AsyncApp
from tarry.core.errors import InvalidInput, InvalidState, StoreUnavailable
from tarry.core.journal.events import EventKind
from tarry.core.journal.positions import Gap, GapReason, LiveEvent
from tarry.core.settings import RetrySettings, StoreSettings
from tarry.edges.http.settings import BrokerSettings
from tarry.http import AsyncClient, Client
from tarry.storage.http.protocol import Address
from tarry.storage.http.transport import EventTail
from tarry.storage.memory import AsyncMemoryStore, MemoryStore
from tests.kit.blocking import Loop
from tests.kit.brokers import broker_on

OPEN = BrokerSettings(anonymous=True)
QUICK = timedelta(milliseconds=20)
PATIENT = StoreSettings(connection_retry=RetrySettings(retries=1_000, initial_for=QUICK, cap_for=QUICK))
BRIEF = StoreSettings(connection_retry=RetrySettings.none())

BROKER = Address("http://localhost:1", None)


@pytest.fixture
def behind() -> AsyncApp:
    return AsyncApp(AsyncMemoryStore(MemoryStore(settings=StoreSettings(scan_every=timedelta(milliseconds=20)))))


def start(behind: AsyncApp, http_loop: Loop) -> str:
    """The position before anything happens: later events are streamed, whenever a client connects."""
    http_loop.run(behind.queues.create("q"))
    return http_loop.run(behind.store.run(behind.store.journal.tail(None))).position


def offer(behind: AsyncApp, http_loop: Loop, *keys: str, queue: str = "q") -> None:
    for key in keys:
        http_loop.run(behind.queue(queue).offer(key, {"secret": key}))


def kinds_and_keys(entries: list[Any]) -> list[tuple[str, str]]:
    return [(entry.event.kind.value, entry.event.key) for entry in entries]


def test_events_are_values_with_a_place_to_go_on_from(behind: AsyncApp, http_loop: Loop, broker_url: str) -> None:
    after = start(behind, http_loop)
    offer(behind, http_loop, "a", "b")
    offer(behind, http_loop, "other", queue="r")
    with Client(broker_url) as client:
        events = client.events("q", after=after)
        first, second = next(events), next(events)
        assert isinstance(first, LiveEvent)
        assert kinds_and_keys([first, second]) == [("offered", "a"), ("offered", "b")]
        assert first.event.payload is None
        assert kinds_and_keys([next(client.events(["q"], [EventKind.OFFERED], after=first.position))]) == [
            ("offered", "b")
        ]
        assert kinds_and_keys([next(client.events(kinds="offered", after=after))]) == [("offered", "a")]
        (stored,) = http_loop.run(behind.store.run(behind.store.journal.timeline("q", "a")))
        assert first.event == stored


def test_one_that_awaits_has_the_same(behind: AsyncApp, http_loop: Loop, broker_url: str) -> None:
    after = start(behind, http_loop)
    offer(behind, http_loop, "a", "b")

    async def two() -> list[Any]:
        async with AsyncClient(broker_url) as client, aclosing(client.events(["q"], after=after)) as events:
            return [await anext(events), await anext(events)]

    assert kinds_and_keys(asyncio.run(two())) == [("offered", "a"), ("offered", "b")]


def test_when_the_broker_comes_back_so_does_the_stream_and_no_event_is_lost_or_repeated(
    behind: AsyncApp, http_loop: Loop
) -> None:
    after = start(behind, http_loop)
    received: SimpleQueue[Any] = SimpleQueue()

    def read_events(client: Client) -> None:
        with closing(client.events("q", after=after)) as events:  # pyright: ignore[reportArgumentType]
            for _ in range(4):
                received.put(next(events))

    with broker_on(behind, http_loop, OPEN) as url, Client(url, settings=PATIENT) as client:
        port = int(url.rpartition(":")[2])
        thread = threading.Thread(target=read_events, args=(client,))
        thread.start()
        offer(behind, http_loop, "a", "b")
        entries = [received.get(timeout=30), received.get(timeout=30)]
    offer(behind, http_loop, "c")
    with broker_on(behind, http_loop, OPEN, port):
        offer(behind, http_loop, "d")
        entries += [received.get(timeout=30), received.get(timeout=30)]
        thread.join(30)
    assert [entry.event.key for entry in entries] == ["a", "b", "c", "d"]


def test_a_gap_is_reported(behind: AsyncApp, http_loop: Loop, broker_url: str) -> None:
    start(behind, http_loop)
    with Client(broker_url) as client:
        events = client.events(after="no-such-position")
        missed = next(events)
        assert isinstance(missed, Gap)
        assert (missed.reason, "starts now" in missed.detail) == (GapReason.UNKNOWN, True)
        offer(behind, http_loop, "a")
        assert kinds_and_keys([next(events)]) == [("offered", "a")]


def test_what_is_refused_is_an_error_and_so_is_a_broker_that_is_not_there(
    behind: AsyncApp, http_loop: Loop, key: Callable[..., str]
) -> None:
    narrow = key("read", queues=("q",))
    with broker_on(behind, http_loop, BrokerSettings()) as url:
        with Client(url, narrow) as client:
            with pytest.raises(InvalidState, match="may not read"):
                next(client.events("foreign"))
            with pytest.raises(InvalidInput):
                next(client.events(kinds="explode"))
        with Client(url) as client, pytest.raises(InvalidState, match="API key"):
            next(client.events())
    with Client(url, narrow, settings=BRIEF) as client, pytest.raises(StoreUnavailable, match="cannot be reached"):
        next(client.events())


def test_a_stream_that_breaks_off_after_an_hour_has_all_of_its_retries() -> None:
    hours = [0]
    tail = EventTail(StoreSettings(), ["q"], [], "old", timer=lambda: hours[0] * 3_600.0)
    assert b"last-event-id: old\r\n" in tail.request(BROKER).data
    assert list(tail.events(b": hello\nid: p")) == []
    assert list(tail.events(b"1\n\nid: p2\nda")) == []
    hours[0] = 1
    tail.failed(ConnectionResetError("cut"))
    assert b"last-event-id: p1\r\n" in tail.request(BROKER).data
    with pytest.raises(StoreUnavailable, match="after 5 retries"):
        fail(tail, 9)


def fail(tail: EventTail, times: int) -> None:
    for _ in range(times):
        tail.failed(ConnectionRefusedError("away"))
        tail.request(BROKER)
