"""The memory store's journal: the fields of an event, and what is forgotten."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import sha256

import pytest

from tarry.core.errors import UnknownQueue
from tarry.core.journal.events import Event, EventKind, JournalLevel
from tarry.core.messages.model import Draft, Failure, PollOptions
from tarry.core.settings import QueueSettings
from tarry.storage.memory import MemoryStore
from tarry.testing import MutableClock

START = datetime(2024, 1, 1, tzinfo=UTC)


def plain(payload: bytes, content_type: str | None) -> bytes:
    return payload


def seconds(n: float) -> timedelta:
    return timedelta(seconds=n)


def kinds(events: list[Event]) -> list[EventKind]:
    return [event.kind for event in events]


@pytest.fixture
def clock() -> MutableClock:
    return MutableClock(START)


@pytest.fixture
def store(clock: MutableClock) -> MemoryStore:
    return MemoryStore(clock=clock)


def test_an_event_has_the_message_and_its_consumer(store: MemoryStore, clock: MutableClock) -> None:
    store.run(store.messages.offer("q", Draft("a", b"payload", priority=4)))
    clock.advance(seconds(1))
    [first] = store.run(store.messages.poll("q", 1, plain, PollOptions(lease_for=seconds(10), consumer="one")))
    clock.advance(seconds(10))
    [second] = store.run(store.messages.poll("q", 1, plain, PollOptions(consumer="two")))
    store.run(store.messages.nack("q", [Failure(second.lease_id, "broken", seconds(7))]))
    offered, leased, expired, again, nacked = store.run(store.journal.timeline("q", "a"))

    assert kinds([offered, leased, expired, again, nacked]) == [
        EventKind.OFFERED, EventKind.LEASED, EventKind.EXPIRED, EventKind.LEASED, EventKind.NACKED,
    ]  # fmt: skip
    assert (offered.at, offered.queue, offered.version, offered.attempt, offered.priority) == (START, "q", 1, 0, 4)
    assert (offered.size, offered.payload_hash, offered.payload) == (7, sha256(b"payload").digest()[:8], None)
    assert (offered.due_at, offered.leased_at, offered.lease_until, offered.consumer) == (START, None, None, None)
    for event, attempt in [(leased, 1), (expired, 1)]:
        assert (event.attempt, event.consumer) == (attempt, "one")
        assert (event.leased_at, event.lease_until) == (first.leased_at, first.lease_until)
    assert expired.at == again.at == clock.pinned()
    assert (again.attempt, again.consumer, again.size) == (2, "two", None)
    assert (nacked.attempt, nacked.consumer, nacked.error) == (2, "two", "broken")
    assert nacked.due_at == clock.pinned() + seconds(7)
    assert (nacked.leased_at, nacked.lease_until) == (second.leased_at, second.lease_until)


def test_the_level_of_a_queue_decides_what_is_written(store: MemoryStore) -> None:
    for level in JournalLevel:
        store.run(store.queues.create(level.value, QueueSettings(journal=level), exist_ok=False))
        store.run(store.messages.offer(level.value, Draft("a", b"1")))
        store.run(store.messages.offer(level.value, Draft("a", b"2")))
        store.run(store.queues.pause(level.value))
    assert store.run(store.journal.timeline("off", "a")) == []
    assert [event.payload for event in store.run(store.journal.timeline("events", "a"))] == [None, None]
    assert [event.payload for event in store.run(store.journal.timeline("payloads", "a"))] == [b"1", b"2"]
    assert kinds([e for e in store.events() if e.queue == "off"]) == [EventKind.QUEUE_CREATED, EventKind.QUEUE_PAUSED]


def test_a_bounded_journal_forgets_the_oldest_and_keeps_the_messages(clock: MutableClock) -> None:
    store = MemoryStore(clock=clock, events_kept=3)
    for n in range(5):
        store.run(store.messages.offer("q", Draft("a" if n % 2 else "b", str(n).encode())))
    assert [event.version for event in store.events()] == [3, 4, 5]
    assert [event.version for event in store.run(store.journal.timeline("q", "a"))] == [4]
    assert [event.version for event in store.run(store.journal.timeline("q", "b"))] == [3, 5]
    for n in range(3):
        store.run(store.messages.offer("q", Draft("c", str(n).encode())))
    assert store.run(store.journal.timeline("q", "a")) == store.run(store.journal.timeline("q", "b")) == []
    assert {message.key for message in store.run(store.messages.list("q"))} == {"a", "b", "c"}


def test_a_timeline_gives_the_last_events_oldest_first(store: MemoryStore) -> None:
    for n in range(5):
        store.run(store.messages.offer("q", Draft("a", str(n).encode())))
    assert [event.version for event in store.run(store.journal.timeline("q", "a", limit=2))] == [4, 5]
    assert store.run(store.journal.timeline("q", "a", limit=0)) == []


def test_a_timeline_follows_a_queue_to_its_new_name(store: MemoryStore) -> None:
    store.run(store.messages.offer("old", Draft("a", b"")))
    store.run(store.queues.rename("old", "new"))
    store.run(store.messages.drop("new", "a"))
    assert [(e.kind, e.queue) for e in store.run(store.journal.timeline("new", "a"))] == [
        (EventKind.OFFERED, "new"),
        (EventKind.DROPPED, "new"),
    ]
    with pytest.raises(UnknownQueue):
        store.run(store.journal.timeline("old", "a"))


def test_a_forced_deletion_records_every_message(store: MemoryStore) -> None:
    store.run(store.messages.offer_many("q", [Draft("dead", b""), Draft("alive", b"", after=seconds(9))]))
    [lease] = store.run(store.messages.poll("q", 1, plain))
    store.run(store.messages.bury("q", [lease.lease_id], error="enough"))
    store.run(store.queues.delete("q", force=True))
    assert [(event.kind, event.key) for event in store.events()][-4:] == [
        (EventKind.DROPPED, "alive"),
        (EventKind.QUEUE_PURGED, None),
        (EventKind.DISCARDED, "dead"),
        (EventKind.QUEUE_DELETED, None),
    ]
