"""What the processes of the races do: one function each, importable, so that a spawned process finds it."""

from __future__ import annotations

import multiprocessing
import random
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any, TypeVar

from tarry.core.messages.model import KEEP, Draft, Failure
from tarry.core.messages.outcomes import Outcome, Settled
from tarry.core.settings import RetrySettings, StoreSettings
from tarry.storage.postgres._sync.store import PostgresStore

R = TypeVar("R")

QUEUE = "race"
PROCESSES = 4
TIMEOUT_S = 100.0
# No second try: a deadlock, or any other error that a second try would hide, must be seen.
STRICT = StoreSettings(connection_retry=RetrySettings.none())

_barrier: Any = None


def _prepare(barrier: Any) -> None:
    global _barrier  # noqa: PLW0603
    _barrier = barrier


def _begin(work: Callable[..., R], *args: Any) -> R:
    _barrier.wait(TIMEOUT_S)
    return work(*args)


def in_processes(work: Callable[..., R], arguments: Sequence[Sequence[Any]]) -> list[R]:
    """Each in a process of its own, all beginning at the same moment."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(len(arguments))
    with ProcessPoolExecutor(len(arguments), context, initializer=_prepare, initargs=(barrier,)) as pool:
        futures = [pool.submit(_begin, work, *args) for args in arguments]
        return [future.result(TIMEOUT_S) for future in futures]


def plain(data: bytes, content_type: str | None) -> bytes:
    return data


def offer_if_absent(dsn: str, keys: list[str], name: str) -> list[Outcome]:
    store = PostgresStore(dsn, settings=STRICT)
    try:
        return [store.run(store.messages.offer(QUEUE, Draft(key, name.encode(), conflict=KEEP))) for key in keys]
    finally:
        store.close()


def drain(dsn: str) -> list[str]:
    """Lease and ack until there is nothing; the keys that were acked here."""
    store = PostgresStore(dsn, settings=STRICT)
    acked: list[str] = []
    try:
        while leases := store.run(store.messages.poll(QUEUE, 3, plain)):
            outcomes = store.run(store.messages.ack(QUEUE, [lease.lease_id for lease in leases]))
            acked += [lease.key for lease, outcome in zip(leases, outcomes, strict=True) if outcome is Settled.DONE]
        return acked
    finally:
        store.close()


def offer_keys(dsn: str, keys: list[str], name: str, threads: int) -> Counter[Outcome]:
    """Every key once by each of a few threads, with a payload of its own."""
    store = PostgresStore(dsn, settings=STRICT)

    def run(thread: int) -> list[Outcome]:
        return [
            store.run(store.messages.offer(QUEUE, Draft(key, f"{name}/{thread}/{i}".encode())))
            for i, key in enumerate(keys)
        ]

    try:
        with ThreadPoolExecutor(threads) as pool:
            return Counter(outcome for group in pool.map(run, range(threads)) for outcome in group)
    finally:
        store.close()


def shuffle_batches(dsn: str, seed: int, rounds: int) -> Counter[str]:
    """Batches of the same few keys in a different order each time: offered, leased, and settled in every way."""
    store = PostgresStore(dsn, settings=STRICT)
    chance = random.Random(seed)
    keys = [f"k{i:02d}" for i in range(60)]
    outcomes: Counter[str] = Counter()
    try:
        for i in range(rounds):
            batch = chance.sample(keys, 40)
            outcomes.update(
                o.value
                for o in store.run(
                    store.messages.offer_many(QUEUE, [Draft(key, b"%d/%d" % (seed, i)) for key in batch])
                )
            )
            leases = store.run(store.messages.poll(QUEUE, 20, plain))
            chance.shuffle(leases)
            lease_ids = [lease.lease_id for lease in leases]
            outcomes.update(outcome.value for outcome in store.run(store.messages.touch(QUEUE, lease_ids)))
            chance.shuffle(lease_ids)
            outcomes.update(outcome.value for outcome in store.run(store.messages.ack(QUEUE, lease_ids[:10])))
            outcomes.update(
                outcome.value
                for outcome in store.run(
                    store.messages.nack(QUEUE, [Failure(lease_id) for lease_id in lease_ids[10:15]])
                )
            )
            outcomes.update(outcome.value for outcome in store.run(store.messages.release(QUEUE, lease_ids[15:])))
        return outcomes
    finally:
        store.close()
