"""Searching for live messages in many queues, in every kind of store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from tarry.app import App
from tarry.core.messages.model import MessagePosition
from tarry.core.messages.states import State
from tarry.core.search.hits import SearchPage
from tarry.core.search.query import parse
from tests.kit.clocks import WatchedClock

pytestmark = pytest.mark.where_the_messages_are
QUEUES = ("mails", "orders")


def search(app: App, text: str, queues: Sequence[str] = QUEUES, **options: Any) -> SearchPage:
    store = app.store
    return store.run(store.search.messages(parse(text, store.run(store.queues.now())), queues, **options))


def keys(app: App, text: str, **options: Any) -> list[str]:
    return [message.key for message in search(app, text, **options).messages]


@pytest.fixture
def filled(app: App) -> App:
    orders, mails = app.queue("orders"), app.queue("mails")
    headers = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
    orders.offer("o-1", {"n": 1}, type="invoice", priority=7, headers=headers)
    orders.offer("o-2", {"n": 2}, after=timedelta(minutes=30))
    orders.offer("o-3", {"n": 3}, after=timedelta(hours=3))
    mails.offer("m-1", {"n": 4})
    mails.offer("o-1", {"n": 5}, after=timedelta(minutes=1))
    mails.offer("failed", {"n": 6}, after=timedelta(0))
    for lease in mails.try_poll_many(2):
        if lease.key == "failed":
            lease.nack("TimeoutError: Too slow", after=timedelta(minutes=5))
    return app


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("queue:orders", {"o-1", "o-2", "o-3", "m-1", "failed"}),
        ("state:delayed", {"o-1", "o-2", "o-3", "failed"}),
        ("state:ready", {"o-1"}),
        ("state:leased", {"m-1"}),
        ("type:invoice", {"o-1"}),
        ("key:o-2", {"o-2"}),
        ("o-", {"o-1", "o-2", "o-3"}),
        ("key:O-*", set()),
        ("priority:>=5", {"o-1"}),
        ("priority:<5 state:delayed", {"o-1", "o-2", "o-3", "failed"}),
        ("attempts:>0", {"m-1", "failed"}),
        ("attempts:0", {"o-1", "o-2", "o-3"}),
        ("error:~timeout", {"failed"}),
        ("error:~nothing", set()),
        ("due:>+1h", {"o-3"}),
        ("due:<+1h due:>+2m", {"o-2", "failed"}),
        ("created:>-1h", {"o-1", "o-2", "o-3", "m-1", "failed"}),
        ("created:<-1h", set()),
        ("o- due:>+1h", {"o-3"}),
        ("trace:4bf9", {"o-1"}),
        ("trace:4BF92F3577B34DA6A3CE929D0E0E4736", {"o-1"}),
        ("trace:f92f", set()),
        ("lag:>0s", {"o-1", "m-1"}),
        ("lag:>1s", set()),
        ("lag:<1s", {"o-1", "m-1"}),
        ("id:0", set()),
    ],
)
def test_each_term_restricts_the_result(filled: App, text: str, result: set[str]) -> None:
    """A term about the queue is the caller's to resolve."""
    assert set(keys(filled, text)) == result


def test_the_version_of_a_message_is_its_id(filled: App) -> None:
    version = search(filled, "key:o-2").messages[0].version
    assert keys(filled, f"id:{version}") == keys(filled, f"key:o-2 id:{version}") == ["o-2"]


def test_the_lag_of_a_leased_message_ends_with_its_delivery(app: App, clock: WatchedClock) -> None:
    queue = app.queue("lagging")
    queue.offer("lag-1", 0)
    queue.offer("lag-2", 0)
    clock.advance(timedelta(seconds=10))
    assert [each.key for each in queue.try_poll_many(1, lease_for=timedelta(minutes=5))] == ["lag-1"]
    clock.advance(timedelta(seconds=30))
    assert keys(app, "lag:>10s lag:<20s", queues=["lagging"]) == ["lag-1"]
    assert keys(app, "lag- lag:>20s", queues=["lagging"]) == ["lag-2"]


def test_pages_in_due_order_have_everything_once(filled: App) -> None:
    seen: list[str] = []
    after = None
    while page := search(filled, "", limit=2, after=after).messages:
        seen += [f"{message.queue}/{message.key}" for message in page]
        after = MessagePosition(page[-1].due_at, page[-1].version)
    assert sorted(seen) == ["mails/failed", "mails/m-1", "mails/o-1", "orders/o-1", "orders/o-2", "orders/o-3"]
    assert seen[-1] == "orders/o-3"


def test_matches_are_counted_beyond_the_page_and_payloads_are_read_on_request(filled: App) -> None:
    result = search(filled, "state:delayed", limit=1)
    assert (result.matching.n, result.matching.capped, result.horizon) == (4, False, None)
    assert result.messages[0].payload == b""
    assert search(filled, "key:o-2", payloads=True).messages[0].payload == b'{"n":2}'
    assert search(filled, "key:o-2").messages[0].state is State.DELAYED


def test_queues_that_are_not_named_are_not_searched(filled: App) -> None:
    store = filled.store
    result = store.run(store.search.messages(parse("", store.run(store.queues.now())), ["orders"]))
    assert {message.queue for message in result.messages} == {"orders"}
    assert store.run(store.search.messages(parse("", store.run(store.queues.now())), ["missing"])).messages == []
