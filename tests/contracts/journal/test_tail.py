"""Following the journal: what was committed after a position, once each, from any position that was ever given out."""

from __future__ import annotations

from typing import Any

import pytest

from tarry import Message, Queue, QueueSettings
from tarry.app import App
from tarry.core.events import Event, JournalLevel
from tarry.core.following import EventPage, Gap, Position
from tests.kit.backends import new_name
from tests.kit.steps import take

NONSENSE = (
    "", "x", "12", "~", "1~1:1", "1~0:0:", "1~5:4:", "1~1:9:9", "1~1:9:3,2", "1~1:9:2,2", "1~1:1:~", "'; select 1 --",
    "1~1:99999999999999999999:", f"1~1:{2**63}:", f"1~{2**62}:{2**62}:", f"1~3:{2**33}:", f"1~3:{2**33 + 3}:{2**32}",
    "1~1:9:~1:9:~1", "1~٣:٣:", "1~1:9:~1:9:~9999999999999999999~1",
    "1~1:9:" + ",".join(str(n) for n in range(1, 9)) * 9_000,
)  # fmt: skip


def here(app: App) -> str:
    return app.store.follow(None).position


def told(app: App, after: str, **options: Any) -> list[Event]:
    """Everything after a position, page by page."""
    events: list[Event] = []
    while True:
        page = app.store.follow(after, **options)
        assert page.gap is None
        events += [event for _, event in page.events]
        after = page.position
        if page.complete:
            return events


def kinds(events: list[Event]) -> list[tuple[str, str | None]]:
    return [(event.kind.value, event.key) for event in events]


def test_what_was_there_before_is_not_told(app: App, queue: Queue[Any]) -> None:
    queue.offer("before", 1)
    page = app.store.follow(None)
    assert page == EventPage(position=page.position)
    assert told(app, page.position) == []


def test_every_change_is_told_once_in_its_order(app: App, queue: Queue[Any]) -> None:
    start = here(app)
    queue.offer("a", 1)
    take(queue).ack()
    queue.offer("b", 1)
    events = told(app, start)
    assert kinds(events) == [
        ("queue_created", None), ("offered", "a"), ("leased", "a"), ("acked", "a"), ("offered", "b"),
    ]  # fmt: skip
    assert {event.queue for event in events} == {queue.name}
    assert [event for event in events if event.key == "a"] == app.store.timeline(queue.name, "a")


def test_a_payload_is_never_told(app: App) -> None:
    app.queues.create(name := new_name(), QueueSettings(journal=JournalLevel.PAYLOADS))
    start = here(app)
    app.queue(name).offer("a", "secret")
    (event,) = told(app, start)
    assert (event.payload, event.size) == (None, 6)
    assert app.store.timeline(name, "a")[0].payload == b"secret"


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_pages_of_any_size_tell_the_same(app: App, queue: Queue[Any], limit: int) -> None:
    queue.offer("first", 0)
    start = here(app)
    queue.offer_many([Message(key=f"k{n}", payload=n) for n in range(5)])
    queue.offer("last", 1)
    assert kinds(told(app, start, limit=limit)) == kinds(told(app, start))
    assert len(app.store.follow(start, limit=limit).events) == min(limit, 6)


def test_from_every_position_the_rest_is_told(app: App, queue: Queue[Any]) -> None:
    queue.offer("first", 0)
    start = here(app)
    queue.offer_many([Message(key=f"k{n}", payload=n) for n in range(4)])
    page = app.store.follow(start)
    queue.offer_many([Message(key=f"l{n}", payload=n) for n in range(2)])
    whole = kinds(told(app, start))
    assert len(whole) == 6
    for n, (position, event) in enumerate(page.events):
        assert (event.kind.value, event.key) == whole[n]
        assert kinds(told(app, position)) == whole[n + 1 :]
        assert kinds(told(app, position, limit=1)) == whole[n + 1 :]
    assert kinds(told(app, page.position)) == whole[4:]


def test_nothing_is_told_beyond_the_end_that_was_asked_for(app: App, queue: Queue[Any]) -> None:
    queue.offer("first", 0)
    start = here(app)
    queue.offer("a", 1)
    until = app.store.follow(start).position
    queue.offer("b", 1)
    assert kinds(told(app, start, until=until)) == [("offered", "a")]
    assert told(app, until, until=until) == []
    assert told(app, here(app), until=until) == []


def test_who_is_too_far_back_is_told_so_and_where_to_go_on(app: App, queue: Queue[Any]) -> None:
    queue.offer("first", 0)
    start = here(app)
    queue.offer_many([Message(key=f"k{n}", payload=n) for n in range(5)])
    assert app.store.follow(start, most=5).gap is None
    page = app.store.follow(start, most=4)
    assert (page.gap, page.events, page.complete) == (Gap.TOO_FAR, (), True)
    queue.offer("next", 1)
    assert kinds(told(app, page.position)) == [("offered", "next")]


@pytest.mark.parametrize("text", NONSENSE, ids=lambda text: repr(text[:20]))
def test_what_is_no_position_is_a_gap(app: App, queue: Queue[Any], text: str) -> None:
    assert Position.parse(text) is None
    page = app.store.follow(text)
    assert (page.gap, page.events) == (Gap.UNKNOWN, ())
    assert told(app, page.position) == []
    assert app.store.follow(here(app), until=text).gap is Gap.UNKNOWN


def test_a_position_of_another_journal_or_of_the_future_is_a_gap(app: App) -> None:
    found = Position.parse(here(app))
    assert found is not None
    elsewhere = Position("123.4", found.edge)
    future = Position.parse(f"{found.journal}~{2**62 + 5}:{2**62 + 5}:")
    assert str(Position.parse(str(elsewhere))) == str(elsewhere)
    for position in (elsewhere, future):
        assert app.store.follow(str(position)).gap is Gap.UNKNOWN
