"""The journal on Redis: the events of a script are one entry of a stream, which is read event by event, and is bounded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tarry import Message
from tarry.app import App
from tarry.core.journal.events import Event
from tarry.core.journal.positions import GapReason
from tarry.storage.redis._sync.store import RedisStore
from tests.kit.backends import new_name
from tests.kit.redis_servers import RedisServer, until
from tests.kit.steps import SECOND


@pytest.fixture(scope="module")
def app() -> Iterator[App]:
    server = RedisServer("--appendfsync", "no")
    with App(RedisStore(server.url)) as app:  # pyright: ignore[reportArgumentType]
        yield app
    server.close()


def test_an_entry_of_many_events_is_read_in_pages_of_any_size_with_each_event_once(app: App) -> None:
    queue = app.queue(new_name())
    queue.offer("first", 0)
    position = app.store.run(app.store.journal.tail(None)).position
    queue.offer_many([Message(key=f"m-{n}", payload=n) for n in range(20)])
    queue.leases.ack([delivery.lease_id for delivery in queue.try_poll_many(30)])
    events: list[Event] = []

    def is_complete() -> bool:
        """Ids run ahead of the clock by a microsecond per event, and a page ends before the clock."""
        nonlocal position
        page = app.store.run(app.store.journal.tail(position, limit=7))
        assert len(page.events) <= 7
        events.extend(event for _, event in page.events)
        position = page.position
        return page.complete and len(events) >= 62

    until(is_complete)
    assert [event.kind.value for event in events] == ["offered"] * 20 + ["leased"] * 21 + ["acked"] * 21
    assert [event.id for event in events] == sorted({event.id for event in events})
    for key in ("m-0", "m-19"):
        whole = [event for event in events if event.key == key]
        assert app.store.run(app.store.journal.timeline(queue.name, key)) == whole
        earlier = app.store.run(app.store.journal.timeline(queue.name, key, before=whole[2].id, limit=1))
        assert earlier == [whole[1]]


def test_about_the_last_twenty_thousand_events_are_kept(app: App) -> None:
    store: Any = app.store
    queue = app.queue(new_name())
    queue.offer("first", 0)
    position = store.run(store.journal.tail(None)).position
    for _ in range(23):
        queue.offer_many([Message(key=str(n), payload=0, after=SECOND) for n in range(1_000)])
    id = store.queues._context.ids[queue.name].id
    before, kept = None, 0
    while True:
        events, before = _run(store, store.journal.before(id, before, 1_000))
        kept += len(events)
        if before is None:
            break
    assert 20_000 <= kept <= 22_000
    assert store.run(store.journal.tail(position)).gap is GapReason.PRUNED


def _run(store: Any, op: Any) -> Any:
    call = next(op)
    while True:
        try:
            call = op.send(store._reply(call))
        except StopIteration as stop:
            return stop.value
