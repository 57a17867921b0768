"""Live events in the Python client: they come back to where they were, and say so where something is missing."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import aclosing, closing
from datetime import timedelta
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from tarry.app import AsyncApp
from tarry.core.errors import InvalidInput, Refused, StoreUnavailable
from tarry.core.events import EventKind
from tarry.core.following import Gap, LiveEvent, Missed
from tarry.core.settings import Patience, StoreSettings
from tarry.edges.http.settings import BrokerSettings
from tarry.http import AsyncClient, Client
from tarry.storage.http import transport
from tarry.storage.http.feed import Feed
from tarry.storage.memory import AsyncMemoryStore, MemoryStore
from tests.kit.blocking import Loop
from tests.kit.brokers import broker_on

OPEN = BrokerSettings(anonymous=True)
QUICK = timedelta(milliseconds=20)
PATIENT = StoreSettings(patience=Patience(retries=1_000, initial_for=QUICK, cap_for=QUICK))
BRIEF = StoreSettings(patience=Patience.none())


@pytest.fixture
def behind() -> AsyncApp:
    return AsyncApp(AsyncMemoryStore(MemoryStore(settings=StoreSettings(scan_every=timedelta(milliseconds=20)))))


def start(behind: AsyncApp, http_loop: Loop) -> str:
    """The position before anything happens: what follows it is told, whenever one comes."""
    http_loop.run(behind.queues.create("q"))
    return http_loop.run(behind.store.follow(None)).position


def offer(behind: AsyncApp, http_loop: Loop, *keys: str, queue: str = "q") -> None:
    for key in keys:
        http_loop.run(behind.queue(queue).offer(key, {"secret": key}))


def said(told: list[Any]) -> list[tuple[str, str]]:
    return [(one.event.kind.value, one.event.key) for one in told]


def test_events_are_values_with_a_place_to_go_on_from(behind: AsyncApp, http_loop: Loop, broker_url: str) -> None:
    after = start(behind, http_loop)
    offer(behind, http_loop, "a", "b")
    offer(behind, http_loop, "other", queue="r")
    with Client(broker_url) as client:
        events = client.events("q", after=after)
        first, second = next(events), next(events)
        assert isinstance(first, LiveEvent)
        assert said([first, second]) == [("offered", "a"), ("offered", "b")]
        assert first.event.payload is None
        assert said([next(client.events(["q"], [EventKind.OFFERED], after=first.position))]) == [("offered", "b")]
        assert said([next(client.events(kinds="offered", after=after))]) == [("offered", "a")]
        (stored,) = http_loop.run(behind.store.timeline("q", "a"))
        assert first.event == stored


def test_one_that_awaits_has_the_same(behind: AsyncApp, http_loop: Loop, broker_url: str) -> None:
    after = start(behind, http_loop)
    offer(behind, http_loop, "a", "b")

    async def two() -> list[Any]:
        async with AsyncClient(broker_url) as client, aclosing(client.events(["q"], after=after)) as events:
            return [await anext(events), await anext(events)]

    assert said(asyncio.run(two())) == [("offered", "a"), ("offered", "b")]


def test_when_the_broker_comes_back_so_does_the_stream_and_nothing_is_lost_or_told_twice(
    behind: AsyncApp, http_loop: Loop
) -> None:
    after = start(behind, http_loop)
    told: SimpleQueue[Any] = SimpleQueue()

    def follow(client: Client) -> None:
        with closing(client.events("q", after=after)) as events:  # pyright: ignore[reportArgumentType]
            for _ in range(4):
                told.put(next(events))

    with broker_on(behind, http_loop, OPEN) as url, Client(url, settings=PATIENT) as client:
        port = int(url.rpartition(":")[2])
        thread = threading.Thread(target=follow, args=(client,))
        thread.start()
        offer(behind, http_loop, "a", "b")
        found = [told.get(timeout=30), told.get(timeout=30)]
    offer(behind, http_loop, "c")
    with broker_on(behind, http_loop, OPEN, port):
        offer(behind, http_loop, "d")
        found += [told.get(timeout=30), told.get(timeout=30)]
        thread.join(30)
    assert [one.event.key for one in found] == ["a", "b", "c", "d"]


def test_a_gap_is_said(behind: AsyncApp, http_loop: Loop, broker_url: str) -> None:
    start(behind, http_loop)
    with Client(broker_url) as client:
        events = client.events(after="no-such-position")
        missed = next(events)
        assert isinstance(missed, Missed)
        assert (missed.reason, "begins now" in missed.detail) == (Gap.UNKNOWN, True)
        offer(behind, http_loop, "a")
        assert said([next(events)]) == [("offered", "a")]


def test_what_is_refused_is_an_error_and_so_is_a_broker_that_is_not_there(
    behind: AsyncApp, http_loop: Loop, key: Callable[..., str]
) -> None:
    narrow = key("read", queues=("q",))
    with broker_on(behind, http_loop, BrokerSettings()) as url:
        with Client(url, narrow) as client:
            with pytest.raises(Refused, match="may not read"):
                next(client.events("foreign"))
            with pytest.raises(InvalidInput):
                next(client.events(kinds="explode"))
        with Client(url) as client, pytest.raises(Refused, match="API key"):
            next(client.events())
    with Client(url, narrow, settings=BRIEF) as client, pytest.raises(StoreUnavailable, match="cannot be reached"):
        next(client.events())


def test_a_stream_that_breaks_off_after_an_hour_has_all_of_its_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = Feed(StoreSettings(), ["q"], [], "old")
    assert feed.request()["headers"]["last-event-id"] == "old"
    assert list(feed.heard(b": hello\nid: p")) == []
    assert list(feed.heard(b"1\n\nid: p2\nda")) == []
    monkeypatch.setattr(transport, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + 3_600))
    feed.failed(httpx.ReadError("cut"))
    assert feed.request()["headers"]["last-event-id"] == "p1"
    with pytest.raises(StoreUnavailable, match="also not after 5 more tries"):
        fail(feed, 9)


def fail(feed: Feed, times: int) -> None:
    for _ in range(times):
        feed.failed(httpx.ConnectError("away"))
        feed.request()
