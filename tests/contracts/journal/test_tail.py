"""The tail of the journal: events committed after a position, once each, from any position that was ever returned."""

from __future__ import annotations

from typing import Any

import pytest

from tarry import Message, Queue, QueueSettings
from tarry.app import App
from tarry.core.journal.events import Event, JournalLevel
from tarry.core.journal.positions import EventPage, GapReason, Position
from tests.kit.backends import new_name, where_the_messages_are
from tests.kit.steps import take

pytestmark = where_the_messages_are

NONSENSE = (
    "", "x", "12", "~", "1~1:1", "1~0:0:", "1~5:4:", "1~1:9:9", "1~1:9:3,2", "1~1:9:2,2", "1~1:1:~", "'; select 1 --",
    "1~1:99999999999999999999:", f"1~1:{2**63}:", f"1~{2**62}:{2**62}:", f"1~3:{2**33}:", f"1~3:{2**33 + 3}:{2**32}",
    "1~1:9:~1:9:~1", "1~٣:٣:", "1~1:9:~1:9:~9999999999999999999~1",
    "1~1:9:" + ",".join(str(n) for n in range(1, 9)) * 9_000,
)  # fmt: skip


def here(app: App) -> str:
    return app.store.run(app.store.journal.tail(None)).position


def tailed(app: App, after: str, **options: Any) -> list[Event]:
    """Everything after a position, page by page."""
    events: list[Event] = []
    while True:
        page = app.store.run(app.store.journal.tail(after, **options))
        assert page.gap is None
        events += [event for _, event in page.events]
        after = page.position
        if page.complete:
            return events


def kinds(events: list[Event]) -> list[tuple[str, str | None]]:
    return [(event.kind.value, event.key) for event in events]


def test_earlier_events_are_not_replayed(app: App, queue: Queue[Any]) -> None:
    queue.offer("before", 1)
    page = app.store.run(app.store.journal.tail(None))
    assert page == EventPage(position=page.position)
    assert tailed(app, page.position) == []


def test_every_change_is_one_event_in_its_order(app: App, queue: Queue[Any]) -> None:
    start = here(app)
    queue.offer("a", 1)
    take(queue).ack()
    queue.offer("b", 1)
    events = tailed(app, start)
    assert kinds(events) == [
        ("queue_created", None), ("offered", "a"), ("leased", "a"), ("acked", "a"), ("offered", "b"),
    ]  # fmt: skip
    assert {event.queue for event in events} == {queue.name}
    assert [event for event in events if event.key == "a"] == app.store.run(app.store.journal.timeline(queue.name, "a"))


def test_an_event_never_has_the_payload(app: App) -> None:
    app.queues.create(name := new_name(), QueueSettings(journal=JournalLevel.PAYLOADS))
    start = here(app)
    app.queue(name).offer("a", "secret")
    (event,) = tailed(app, start)
    assert (event.payload, event.size) == (None, 6)
    assert app.store.run(app.store.journal.timeline(name, "a"))[0].payload == b"secret"


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_pages_of_any_size_have_the_same_events(app: App, queue: Queue[Any], limit: int) -> None:
    queue.offer("first", 0)
    start = here(app)
    queue.offer_many([Message(key=f"k{n}", payload=n) for n in range(5)])
    queue.offer("last", 1)
    assert kinds(tailed(app, start, limit=limit)) == kinds(tailed(app, start))
    assert len(app.store.run(app.store.journal.tail(start, limit=limit)).events) == min(limit, 6)


def test_a_tail_from_any_position_has_the_remaining_events(app: App, queue: Queue[Any]) -> None:
    queue.offer("first", 0)
    start = here(app)
    queue.offer_many([Message(key=f"k{n}", payload=n) for n in range(4)])
    page = app.store.run(app.store.journal.tail(start))
    queue.offer_many([Message(key=f"l{n}", payload=n) for n in range(2)])
    whole = kinds(tailed(app, start))
    assert len(whole) == 6
    for n, (position, event) in enumerate(page.events):
        assert (event.kind.value, event.key) == whole[n]
        assert kinds(tailed(app, position)) == whole[n + 1 :]
        assert kinds(tailed(app, position, limit=1)) == whole[n + 1 :]
    assert kinds(tailed(app, page.position)) == whole[4:]


def test_a_tail_ends_at_the_requested_position(app: App, queue: Queue[Any]) -> None:
    queue.offer("first", 0)
    start = here(app)
    queue.offer("a", 1)
    until = app.store.run(app.store.journal.tail(start)).position
    queue.offer("b", 1)
    assert kinds(tailed(app, start, until=until)) == [("offered", "a")]
    assert tailed(app, until, until=until) == []
    assert tailed(app, here(app), until=until) == []


def test_a_position_too_far_back_is_a_gap_with_the_position_to_continue_from(app: App, queue: Queue[Any]) -> None:
    queue.offer("first", 0)
    start = here(app)
    queue.offer_many([Message(key=f"k{n}", payload=n) for n in range(5)])
    assert app.store.run(app.store.journal.tail(start, most=5)).gap is None
    page = app.store.run(app.store.journal.tail(start, most=4))
    assert (page.gap, page.events, page.complete) == (GapReason.TOO_FAR, (), True)
    queue.offer("next", 1)
    assert kinds(tailed(app, page.position)) == [("offered", "next")]


def test_what_is_no_position_is_a_gap(app: App, queue: Queue[Any]) -> None:
    for text in NONSENSE:
        assert Position.parse(text) is None, text[:20]
        page = app.store.run(app.store.journal.tail(text))
        assert (page.gap, page.events) == (GapReason.UNKNOWN, ()), text[:20]
        assert tailed(app, page.position) == []
        assert app.store.run(app.store.journal.tail(here(app), until=text)).gap is GapReason.UNKNOWN


def test_a_position_of_another_journal_or_of_the_future_is_a_gap(app: App) -> None:
    current = Position.parse(here(app))
    assert current is not None
    elsewhere = Position("123.4", current.edge)
    future = Position.parse(f"{current.journal}~{2**62 + 5}:{2**62 + 5}:")
    assert str(Position.parse(str(elsewhere))) == str(elsewhere)
    for position in (elsewhere, future):
        assert app.store.run(app.store.journal.tail(str(position))).gap is GapReason.UNKNOWN
