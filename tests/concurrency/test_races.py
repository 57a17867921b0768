"""Processes and threads that contend for the same rows. No call is retried, so every error is seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import psycopg
import pytest

from tarry.core.messages.model import Draft, PollOptions
from tarry.core.messages.outcomes import Outcome, Settled
from tarry.core.settings import QueueSettings
from tarry.storage.postgres._sync.store import PostgresStore
from tests.concurrency.workers import (
    PROCESSES,
    QUEUE,
    STRICT,
    drain,
    in_processes,
    offer_if_absent,
    offer_keys,
    plain,
    shuffle_batches,
)


@pytest.fixture
def store(database: str) -> Iterator[PostgresStore]:
    store = PostgresStore(database, settings=STRICT)
    store.run(store.queues.create(QUEUE, QueueSettings(), exist_ok=False))
    yield store
    store.close()


def test_of_four_producers_one_creates_each_key_and_four_consumers_share_them(
    database: str, store: PostgresStore
) -> None:
    keys = [f"k{i:03d}" for i in range(200)]
    outcomes = in_processes(offer_if_absent, [(database, keys, f"p{n}") for n in range(PROCESSES)])
    assert Counter(outcome for group in outcomes for outcome in group) == {
        Outcome.CREATED: 200,
        Outcome.IGNORED: 600,
    }
    acked = in_processes(drain, [(database,)] * PROCESSES)
    assert sorted(key for part in acked for key in part) == keys
    assert store.run(store.queues.counts(QUEUE)).leased.n == 0


def test_many_threads_of_many_processes_on_one_key_leave_one_message(database: str, store: PostgresStore) -> None:
    counts = in_processes(offer_keys, [(database, ["k"] * 25, f"p{n}", 4) for n in range(PROCESSES)])
    total = sum(counts, Counter())
    assert total == {Outcome.CREATED: 1, Outcome.UPDATED: 399}
    with psycopg.connect(database) as conn:
        query = "select version from tarry.event where key = 'k' order by id"
        versions = [row[0] for row in conn.execute(query)]
    assert len(set(versions)) == 400
    message = store.run(store.messages.read(QUEUE, "k"))
    assert message is not None
    assert message.version == versions[-1], "the last one written is the one that is there"


def test_versions_of_one_key_grow_in_the_order_in_which_they_were_stored(database: str, store: PostgresStore) -> None:
    """A consumer that remembers the highest version it has seen can then recognise an old message."""
    in_processes(offer_keys, [(database, ["k"] * 50, f"p{n}", 4) for n in range(PROCESSES)])
    with psycopg.connect(database) as conn:
        query = "select version from tarry.event where key = 'k' order by id"
        versions = [row[0] for row in conn.execute(query)]
    assert versions == sorted(versions)


def test_processes_with_keys_of_their_own_are_in_nobodys_way(database: str, store: PostgresStore) -> None:
    orders = [(database, [f"p{n}/{i}" for i in range(100)], f"p{n}", 1) for n in range(PROCESSES)]
    assert sum(in_processes(offer_keys, orders), Counter()) == {Outcome.CREATED: 400}
    assert store.run(store.queues.counts(QUEUE)).ready.n == 400


def test_batches_of_the_same_keys_in_every_order_never_deadlock(database: str, store: PostgresStore) -> None:
    outcomes = sum(in_processes(shuffle_batches, [(database, n, 30) for n in range(PROCESSES)]), Counter())
    assert outcomes["created"] + outcomes["updated"] + outcomes["ignored"] == PROCESSES * 30 * 40
    assert outcomes["done"] > 500
    assert outcomes["lease_lost"] > 0, "there was no contention: this proves nothing"
    with psycopg.connect(database) as conn:
        row = conn.execute("select deadlocks from pg_stat_database where datname = current_database()").fetchone()
    assert row == (0,)


def test_an_offer_that_races_an_ack_ends_and_is_never_lost(store: PostgresStore) -> None:
    """The row disappears between the look and the update, over and over."""
    rounds = 400

    def offer() -> list[Outcome]:
        return [store.run(store.messages.offer(QUEUE, Draft("k", b"%d" % i))) for i in range(rounds)]

    with ThreadPoolExecutor(1) as pool:
        offers = pool.submit(offer)
        delivered: list[int] = []
        while not (offers.done() and not store.run(store.messages.contains(QUEUE, "k"))):
            leases = store.run(store.messages.poll(QUEUE, 1, plain))
            delivered += [
                int(lease.payload)
                for lease in leases
                if store.run(store.messages.ack(QUEUE, [lease.lease_id])) == [Settled.DONE]
            ]
        outcomes = Counter(offers.result())
    assert delivered == sorted(set(delivered))
    assert delivered[-1] == rounds - 1, "the last offer was accepted, and is gone"
    assert outcomes[Outcome.CREATED] == len(delivered)
    assert outcomes[Outcome.CREATED] + outcomes[Outcome.UPDATED] == rounds


@pytest.mark.parametrize("verb", ["ack", "release"])
def test_a_touch_at_the_same_moment_never_costs_a_settle_its_lease(store: PostgresStore, verb: str) -> None:
    """Two threads go along the same thousand leases, one by one: one touches, the other settles."""
    n = 1_000
    store.run(store.messages.offer_many(QUEUE, [Draft(f"k{i:04d}", b"") for i in range(n)]))
    lease_ids = [
        lease.lease_id
        for lease in store.run(store.messages.poll(QUEUE, n, plain, PollOptions(lease_for=timedelta(minutes=5))))
    ]
    with ThreadPoolExecutor(2) as pool:
        touches = pool.submit(lambda: [store.run(store.messages.touch(QUEUE, [lease_id]))[0] for lease_id in lease_ids])
        settles = pool.submit(
            lambda: [store.run(getattr(store.messages, verb)(QUEUE, [lease_id]))[0] for lease_id in lease_ids]
        )
        assert Counter(settles.result(100)) == {Settled.DONE: n}
        lost = {"ack": Settled.GONE, "release": Settled.LEASE_LOST}[verb]
        # Busy: the settle of the other thread had locked the row at that moment.
        assert set(touches.result(100)) <= {Settled.DONE, Settled.BUSY, lost}
