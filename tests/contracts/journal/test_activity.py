"""Reading the journal backwards: the newest first, restricted by access, page by page."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

import tarry
from tarry import QueueSettings
from tarry.api.queue import AsyncQueue
from tarry.app import AsyncApp
from tarry.core.analytics.port import AnalyticsPage, AnalyticsQuery
from tarry.core.codecs import PLAIN
from tarry.core.errors import InvalidInput, UnknownQueue
from tarry.core.journal.events import Event, EventKind, JournalLevel
from tarry.storage.memory import AsyncMemoryStore, MemoryStore
from tarry.storage.postgres.journal import recent
from tests.kit.blocking import Loop

SECOND = timedelta(seconds=1)


@pytest.fixture(params=["memory", "postgres"])
def behind(request: pytest.FixtureRequest) -> Iterator[tuple[AsyncApp, Loop]]:
    """An app that awaits, which is the only kind that looks back, and a loop for it."""
    loop = Loop()
    if request.param == "memory":
        yield AsyncApp(AsyncMemoryStore(MemoryStore())), loop
    else:

        async def connected() -> AsyncApp:
            return await tarry.connect_async(request.getfixturevalue("database"))

        app = loop.run(connected())
        yield app, loop
        loop.run(app.close())
    loop.stop()


class Looking:
    def __init__(self, app: AsyncApp, loop: Loop) -> None:
        self.app = app
        self._loop = loop

    def run(self, what: Any) -> Any:
        return self._loop.run(what)

    def page(self, query: AnalyticsQuery, **options: Any) -> AnalyticsPage[Event]:
        store = self.app.store
        return self.run(store.run(store.analytics.events(query, **options)))

    def back(self, *, kinds: Any = None, consumer: str | None = None, **query: Any) -> list[str]:
        """As `kind key`, all pages."""
        events: list[Event] = []
        after: str | None = None
        for _ in range(200):
            page = self.page(AnalyticsQuery(**query, after=after), kinds=kinds, consumer=consumer)
            events += page.rows
            after = page.next
            if after is None:
                break
        else:
            raise AssertionError("it never ends")
        assert not any(event.payload for event in events)
        return [f"{event.kind.value} {event.queue}/{event.key}" for event in events]


@pytest.fixture
def looking(behind: tuple[AsyncApp, Loop]) -> Looking:
    made = Looking(*behind)
    for name in ("a", "b"):
        made.run(made.app.queues.create(name, QueueSettings(journal=JournalLevel.PAYLOADS)))
    return made


@pytest.fixture
def lived(looking: Looking) -> Looking:
    """A message of each queue, offered, leased by a worker of that name and acked, one after the other."""
    for name in ("a", "b"):
        queue = AsyncQueue(looking.app.store, name, PLAIN, consumer=f"w{name}")
        looking.run(queue.offer("k", "secret"))
        looking.run(looking.run(queue.try_poll()).ack())
    return looking


ALL = ["acked b/k", "leased b/k", "offered b/k", "acked a/k", "leased a/k", "offered a/k", "queue_created b/None",
       "queue_created a/None"]  # fmt: skip


def test_everything_comes_the_newest_first(lived: Looking) -> None:
    assert lived.back() == ALL


@pytest.mark.parametrize("limit", [1, 2, 3, 8, 100])
def test_pages_of_any_size_have_every_event_once(lived: Looking, limit: int) -> None:
    assert lived.back(limit=limit) == ALL


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"queue": "a"}, [line for line in ALL if " a/" in line]),
        ({"patterns": ["a"]}, [line for line in ALL if " a/" in line]),
        ({"patterns": ["b*", "c"]}, [line for line in ALL if " b/" in line]),
        ({"patterns": ["c"]}, []),
        ({"patterns": ["*"]}, ALL),
        ({"kinds": [EventKind.LEASED, EventKind.OFFERED]}, ["leased b/k", "offered b/k", "leased a/k", "offered a/k"]),
        ({"consumer": "wa"}, ["acked a/k", "leased a/k"]),
        ({"limit": 1, "patterns": ["a"], "kinds": [EventKind.ACKED]}, ["acked a/k"]),
    ],
    ids=str,
)
def test_only_what_is_wanted_and_may_be_seen(lived: Looking, query: dict[str, Any], expected: list[str]) -> None:
    assert lived.back(**query) == expected


def test_between_two_instants(lived: Looking) -> None:
    now = lived.run(lived.app.store.run(lived.app.store.queues.now()))
    assert lived.back(since=now + SECOND) == lived.back(until=now - timedelta(hours=1)) == []
    assert lived.back(since=now - timedelta(hours=1), until=now + SECOND) == ALL


def test_a_short_page_has_the_position_of_the_next(lived: Looking, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stretches of one transaction each, and a look that is enough after the first of them."""
    monkeypatch.setattr(recent, "FIRST", 1)
    monkeypatch.setattr(recent, "WIDER", 1)
    lived.run(lived.app.queue("a").offer_many([tarry.Message(key=f"m{n}", payload=n) for n in range(5)]))
    many = [f"offered a/m{n}" for n in range(4, -1, -1)]
    assert lived.back(limit=len(many))[: len(many)] == many
    assert lived.back(limit=2)[: len(many)] == many, "also within a transaction"


def test_what_is_no_place_is_refused(looking: Looking) -> None:
    for after in ("x", "1-", "-1", "1-x", "", "9" * 30, "²"):
        with pytest.raises(InvalidInput):
            looking.page(AnalyticsQuery(after=after))


def test_an_unknown_queue_is_reported_as_unknown(looking: Looking) -> None:
    with pytest.raises(UnknownQueue):
        looking.back(queue="nowhere")
