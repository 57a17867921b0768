"""What only the memory store has: threads in one process, and decoding beside the lock.

What it shares with PostgreSQL is in `tests/contracts`.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import uuid4

import pytest

from tarry.core._sync.ports import Store
from tarry.core.errors import InvalidInput, InvalidPayload, UnknownQueue
from tarry.core.journal.events import Event, EventKind
from tarry.core.messages.model import EARLIEST, KEEP, REPLACE, Conflict, Draft, Failure, Lease, LeaseId, PollOptions
from tarry.core.messages.outcomes import Outcome, Settled
from tarry.core.messages.states import State
from tarry.core.ports import AsyncStore
from tarry.core.settings import QueueSettings, StoreSettings
from tarry.storage.memory import AsyncMemoryStore, MemoryStore
from tarry.storage.memory.rows import RowHeap
from tarry.testing import MutableClock

R = TypeVar("R")
TIMEOUT_S = 20
"""Only for tests that fail: nothing here waits for time to pass."""
START = datetime(2024, 1, 1, tzinfo=UTC)


def plain(payload: bytes, content_type: str | None) -> bytes:
    return payload


def seconds(n: float) -> timedelta:
    return timedelta(seconds=n)


@pytest.fixture
def clock() -> MutableClock:
    return MutableClock(START)


@pytest.fixture
def store(clock: MutableClock) -> MemoryStore:
    return MemoryStore(clock=clock, random=lambda: 0.0)


def in_threads(n: int, work: Callable[[int], R]) -> list[R]:
    """Runs `work(0)` to `work(n - 1)` at the same moment."""
    together = threading.Barrier(n)

    def run(number: int) -> R:
        together.wait(TIMEOUT_S)
        return work(number)

    with ThreadPoolExecutor(max_workers=n) as threads:
        return [future.result(TIMEOUT_S) for future in [threads.submit(run, number) for number in range(n)]]


def kinds(events: list[Event]) -> list[EventKind]:
    return [event.kind for event in events]


# the port


def test_both_shells_are_stores() -> None:
    blocking: Store = MemoryStore()
    awaiting: AsyncStore = AsyncMemoryStore(MemoryStore())
    assert blocking.settings == awaiting.settings == StoreSettings()


def test_the_awaiting_shell_shares_messages_with_the_blocking_one(store: MemoryStore) -> None:
    async def scenario() -> list[Settled]:
        shell = AsyncMemoryStore(store)
        assert await shell.run(shell.messages.offer("q", Draft("a", b"1"))) is Outcome.CREATED
        [lease] = await shell.run(shell.messages.poll("q", 5, plain))
        return await shell.run(shell.messages.ack("q", [lease.lease_id]))

    assert asyncio.run(scenario()) == [Settled.DONE]
    assert kinds(store.run(store.journal.timeline("q", "a"))) == [EventKind.OFFERED, EventKind.LEASED, EventKind.ACKED]


def test_every_operation_refuses_a_connection_and_does_nothing(store: MemoryStore) -> None:
    for operation in (
        store.queues.create("q", QueueSettings(), exist_ok=True),
        store.messages.offer("q", Draft("a", b"")),
    ):
        with pytest.raises(InvalidInput, match="the memory store has no connections"):
            store.run(operation, conn=object())
    assert store.run(store.queues.infos()) == []


def test_without_a_pinned_clock_the_process_is_the_authority() -> None:
    before = datetime.now(UTC)
    store = MemoryStore()
    now = store.run(store.queues.now())
    assert before <= now <= datetime.now(UTC)
    assert now.tzinfo is UTC


def test_a_queue_that_must_be_created_first_is_unknown_until_then() -> None:
    store = MemoryStore(settings=StoreSettings(create_queues=False))
    with pytest.raises(UnknownQueue):
        store.run(store.messages.offer("q", Draft("a", b"")))
    with pytest.raises(UnknownQueue):
        store.run(store.messages.poll("q", 1, plain))
    store.run(store.queues.create("q", QueueSettings(), exist_ok=False))
    assert store.run(store.messages.offer("q", Draft("a", b""))) is Outcome.CREATED


def test_headers_are_kept_by_value(store: MemoryStore) -> None:
    headers = {"trace": "1"}
    store.run(store.messages.offer("q", Draft("a", b"", headers=headers)))
    headers["trace"] = "2"
    [lease] = store.run(store.messages.poll("q", 1, plain))
    assert lease.headers == {"trace": "1"}
    dict_given: Any = lease.headers
    dict_given["trace"] = "3"
    message = store.run(store.messages.read("q", "a"))
    assert message is not None
    assert message.headers == {"trace": "1"}


# threads


def test_of_many_threads_that_offer_the_same_keys_one_creates_each(store: MemoryStore) -> None:
    keys = [str(n) for n in range(200)]
    outcomes = in_threads(
        4, lambda _: [store.run(store.messages.offer("q", Draft(key, b"1", conflict=KEEP))) for key in keys]
    )
    assert Counter(outcome for some in outcomes for outcome in some) == {Outcome.CREATED: 200, Outcome.IGNORED: 600}


def test_no_message_is_leased_to_two_threads(store: MemoryStore) -> None:
    store.run(
        store.messages.offer_many("q", [Draft(str(n), b"", priority=n % 10, type="ab"[n % 2]) for n in range(2000)])
    )

    def consume(number: int) -> list[str]:
        taken: list[str] = []
        while leases := store.run(
            store.messages.poll("q", 1 + number % 7, plain, PollOptions(type=[None, "a", "b", None][number % 4]))
        ):
            taken += [lease.key for lease in leases]
        return taken

    taken = [key for some in in_threads(8, consume) for key in some]
    assert sorted(taken) == sorted(str(n) for n in range(2000))


def test_producers_and_consumers_lose_nothing_and_settle_everything_once(store: MemoryStore) -> None:
    each, producers = 250, 4
    settled = threading.Semaphore(0)
    stop = threading.Event()

    def work(number: int) -> list[str]:
        if number < producers:
            for n in range(each):
                assert (
                    store.run(store.messages.offer("q", Draft(f"{number}-{n}", b"", priority=n % 3))) is Outcome.CREATED
                )
            return []
        done: list[str] = []
        while not stop.is_set():
            for lease in store.run(store.messages.poll("q", 3, plain)):
                # Every seventh fails once, and must come back.
                if lease.version % 7 == 0 and not lease.redelivered:
                    assert store.run(store.messages.nack("q", [Failure(lease.lease_id, "again", timedelta(0))])) == [
                        Settled.DONE
                    ]
                    continue
                assert store.run(store.messages.ack("q", [lease.lease_id])) == [Settled.DONE]
                done.append(lease.key)
                settled.release()
        return done

    def watch() -> bool:
        arrived = all(settled.acquire(timeout=TIMEOUT_S) for _ in range(producers * each))
        stop.set()
        return arrived

    with ThreadPoolExecutor() as threads:
        watched = threads.submit(watch)
        done = [key for some in in_threads(producers + 4, work) for key in some]
        assert watched.result(TIMEOUT_S)
    assert sorted(done) == sorted(f"{p}-{n}" for p in range(producers) for n in range(each))
    assert store.run(store.messages.list("q")) == []


def test_of_many_threads_with_the_same_token_one_settles(store: MemoryStore) -> None:
    store.run(store.messages.offer("q", Draft("a", b"")))
    [lease] = store.run(store.messages.poll("q", 1, plain))
    outcomes = in_threads(8, lambda _: store.run(store.messages.ack("q", [lease.lease_id]))[0])
    assert Counter(outcomes) == {Settled.DONE: 1, Settled.GONE: 7}


def test_versions_are_never_used_twice_by_any_thread_or_queue(store: MemoryStore) -> None:
    in_threads(
        6,
        lambda n: [store.run(store.messages.offer(f"q{n % 3}", Draft("k", str((n, i)).encode()))) for i in range(200)],
    )
    versions = [event.version for event in store.events() if event.key is not None]
    assert len(versions) == len(set(versions)) == 1200


def test_of_many_threads_that_make_a_queue_one_does(store: MemoryStore) -> None:
    in_threads(8, lambda n: store.run(store.messages.offer("q", Draft(str(n), b""))))
    assert kinds(store.events()).count(EventKind.QUEUE_CREATED) == 1


def test_the_ids_of_events_grow_through_all_threads_and_queues(store: MemoryStore) -> None:
    in_threads(4, lambda n: [store.run(store.messages.offer(str(n), Draft(str(i), b""))) for i in range(50)])
    ids = [event.id for event in store.events()]
    assert ids == sorted(set(ids))


# decoding, which happens beside the lock


def test_decoding_may_use_the_store(store: MemoryStore) -> None:
    store.run(store.messages.offer("q", Draft("a", b"1")))

    def decode(payload: bytes, content_type: str | None) -> int:
        store.run(store.messages.offer("audit", Draft("seen", payload)))
        return len(store.run(store.messages.list("q")))

    assert [lease.payload for lease in store.run(store.messages.poll("q", 1, decode))] == [1]
    assert store.run(store.messages.contains("audit", "seen"))


def test_a_decoder_that_is_interrupted_leaves_no_trace(store: MemoryStore) -> None:
    store.run(store.queues.create("q", QueueSettings(max_attempts=1), exist_ok=False))
    store.run(store.messages.offer_many("q", [Draft("good", b"1"), Draft("undecodable", b"2"), Draft("breaks", b"3")]))
    written = store.events()

    def decode(payload: bytes, content_type: str | None) -> bytes:
        if payload == b"2":
            raise InvalidPayload("not today")
        if payload == b"3":
            raise KeyboardInterrupt
        return payload

    with pytest.raises(KeyboardInterrupt):
        store.run(store.messages.poll("q", 3, decode))
    assert store.events() == written
    assert store.run(store.dead_letters.list("q")) == []
    assert [(m.key, m.attempt, m.state) for m in store.run(store.messages.list("q"))] == [
        ("good", 0, State.READY),
        ("undecodable", 0, State.READY),
        ("breaks", 0, State.READY),
    ]
    assert store.run(store.wakeup.announce("q", sleep_for=timedelta(0))).due_in == timedelta(0)
    assert [lease.key for lease in store.run(store.messages.poll("q", 9, plain))] == ["good", "undecodable", "breaks"]


def while_decoding(store: MemoryStore, act: Callable[[], object]) -> list[Lease[bytes]]:
    def decode(payload: bytes, content_type: str | None) -> bytes:
        act()
        return payload

    return store.run(store.messages.poll("q", 1, decode))


def test_a_message_that_is_offered_again_while_it_is_decoded_is_handed_over_only_as_the_new_one(
    store: MemoryStore,
) -> None:
    store.run(store.messages.offer("q", Draft("a", b"old", type="t")))
    assert while_decoding(store, lambda: store.run(store.messages.offer("q", Draft("a", b"new", type="t")))) == []
    assert [lease.payload for lease in store.run(store.messages.poll("q", 9, plain, PollOptions(type="t")))] == [b"new"]


def test_an_identical_offer_while_it_is_decoded_changes_nothing(store: MemoryStore) -> None:
    store.run(store.messages.offer("q", Draft("a", b"same")))
    [lease] = while_decoding(store, lambda: store.run(store.messages.offer("q", Draft("a", b"same"))))
    assert store.run(store.messages.ack("q", [lease.lease_id])) == [Settled.DONE]


@pytest.mark.parametrize("verb", ["drop", "purge", "delete_queue"])
def test_a_message_that_goes_while_it_is_decoded_is_gone(store: MemoryStore, verb: str) -> None:
    store.run(store.messages.offer("q", Draft("a", b"")))
    verbs: dict[str, Callable[[], object]] = {
        "drop": lambda: store.run(store.messages.drop("q", "a")),
        "purge": lambda: store.run(store.messages.purge("q")),
        "delete_queue": lambda: store.run(store.queues.delete("q", force=True)),
    }
    assert while_decoding(store, verbs[verb]) == []
    store.run(store.queues.create("q", QueueSettings(), exist_ok=True))
    assert store.run(store.messages.list("q")) == []
    assert store.run(store.wakeup.announce("q", sleep_for=timedelta(0))).due_in is None


@pytest.mark.parametrize("verb", ["ack", "nack", "release"])
def test_the_late_holder_of_an_expired_lease_may_settle_while_another_poll_decodes(
    store: MemoryStore, clock: MutableClock, verb: str
) -> None:
    store.run(store.messages.offer("q", Draft("a", b"")))
    [late] = store.run(store.messages.poll("q", 1, plain, PollOptions(lease_for=seconds(5))))
    clock.advance(seconds(5))
    verbs: dict[str, Callable[[], list[Settled]]] = {
        "ack": lambda: store.run(store.messages.ack("q", [late.lease_id])),
        "nack": lambda: store.run(store.messages.nack("q", [Failure(late.lease_id, "late", seconds(60))])),
        "release": lambda: store.run(store.messages.release("q", [late.lease_id])),
    }
    outcomes: list[Settled] = []
    assert while_decoding(store, lambda: outcomes.extend(verbs[verb]())) == []
    assert outcomes == [Settled.DONE]
    clock.advance(seconds(60))
    again = store.run(store.messages.poll("q", 1, plain))
    assert [lease.attempt for lease in again] == {"ack": [], "nack": [2], "release": [1]}[verb]


def test_a_message_is_claimed_by_one_poll_while_it_is_decoded(store: MemoryStore) -> None:
    store.run(store.messages.offer_many("q", [Draft("a", b"", priority=1), Draft("b", b"")]))
    others: list[list[str]] = []
    [lease] = while_decoding(
        store, lambda: others.append([lease.key for lease in store.run(store.messages.poll("q", 9, plain))])
    )
    assert lease.key == "a"
    assert others == [["b"]]


# order


def test_a_poll_hands_over_what_sorting_everything_would(store: MemoryStore, clock: MutableClock) -> None:
    """Random traffic on a clock that also goes backward; the expected answer comes from `messages`, which sorts."""
    for seed in range(40):
        queue, dice = f"q{seed}", random.Random(seed)
        held = [LeaseId("?", uuid4())]
        for _ in range(150):
            if dice.random() < 0.3:
                clock.advance(seconds(dice.randrange(-20, 30)))
            now = clock.pinned()
            store.run(store.messages.offer_many(queue, [_random_draft(dice, now) for _ in range(dice.randrange(4))]))
            only = dice.choice([None, None, "a", "b"])
            free = [m for m in store.run(store.messages.list(queue, state=State.READY)) if only in (None, m.type)]
            expected = sorted(free, key=lambda m: (-m.priority, m.due_at, m.version))[: (n := dice.randrange(5))]
            waiting = [m for m in store.run(store.messages.list(queue)) if only in (None, m.type)]
            next_at = min((max(m.due_at, m.lease_until or m.due_at) for m in waiting), default=None)

            next_due_in = store.run(store.wakeup.announce(queue, sleep_for=timedelta(0), type=only)).due_in
            leases = store.run(
                store.messages.poll(queue, n, plain, PollOptions(type=only, lease_for=seconds(dice.randrange(1, 20))))
            )

            assert next_due_in == (None if next_at is None else max(next_at - now, timedelta(0)))
            assert [lease.key for lease in leases] == [m.key for m in expected]
            held += [lease.lease_id for lease in leases]
            some = dice.choices(held, k=2)
            store.run(dice.choice([store.messages.ack, store.messages.release, store.messages.touch])(queue, some))
            store.run(store.messages.nack(queue, [Failure(dice.choice(held), None, seconds(dice.randrange(9)))]))
            store.run(store.messages.drop(queue, str(dice.randrange(20))))
        assert _live_by_journal(store, queue) == {m.key: m.version for m in store.run(store.messages.list(queue))}


def _random_draft(dice: random.Random, now: datetime) -> Draft:
    return Draft(
        str(dice.randrange(20)),
        dice.randbytes(1),
        due_at=now + seconds(dice.randrange(-20, 20)),
        priority=dice.randrange(3),
        type=dice.choice([None, "a", "b"]),
        conflict=dice.choice([REPLACE, KEEP, EARLIEST, Conflict.debounce(seconds(10))]),
    )


def _live_by_journal(store: MemoryStore, queue: str) -> dict[str, int | None]:
    live: dict[str, int | None] = {}
    for event in store.events():
        if event.queue != queue or event.key is None:
            continue
        if event.kind in (EventKind.OFFERED, EventKind.UPDATED):
            live[event.key] = event.version
        elif event.kind in (EventKind.ACKED, EventKind.DROPPED):
            assert live.pop(event.key) == event.version
    return live


def test_a_heap_of_rows_does_not_grow_with_what_was_removed_or_moved() -> None:
    store = MemoryStore()
    store.run(store.messages.offer("q", Draft("k", b"")))
    heap, row = RowHeap(), store.state.queue("q").rows["k"]
    for n in range(10_000):
        heap.put(START + seconds(n), row)
    assert len(heap) == 1
    assert len(heap._heap) < 100
    heap.remove(row)
    assert heap.head() is None


def test_an_earliest_that_beat_a_replace_of_its_batch_replaces_also_an_earlier_live_message(
    store: MemoryStore,
) -> None:
    store.run(store.messages.offer("q", Draft("k", b"live", after=seconds(1))))
    drafts = [Draft("k", b"replace", after=seconds(9)), Draft("k", b"earliest", after=seconds(5), conflict=EARLIEST)]
    assert store.run(store.messages.offer_many("q", drafts)) == [Outcome.SUPERSEDED, Outcome.UPDATED]
    message = store.run(store.messages.read("q", "k"))
    assert message is not None
    assert message.payload == b"earliest"


def test_a_settle_in_the_named_queue_looks_at_no_other_queue() -> None:
    class Untouched(set[str]):
        def __contains__(self, name: object) -> bool:
            raise AssertionError("the former names of another queue were read")

    store = MemoryStore()
    store.state.used_queue("other").former_names = Untouched()
    store.run(store.messages.offer("q", Draft("a", b"")))
    [lease] = store.run(store.messages.poll("q", 1, lambda payload, _: payload))
    assert store.run(store.messages.ack("q", [lease.lease_id])) == [Settled.DONE]
