"""What the processes of the races do: one function each, importable, so that a spawned process finds it."""

from __future__ import annotations

import multiprocessing
import random
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any, TypeVar

from tarry.core.messages import KEEP, Draft, Failure
from tarry.core.outcomes import Outcome, Settled
from tarry.core.settings import Patience, StoreSettings
from tarry.storage.postgres.sync import PostgresStore

R = TypeVar("R")

QUEUE = "race"
PROCESSES = 4
PATIENCE_S = 100.0
# No second try: a deadlock, or any other error that a second try would hide, must be seen.
STRICT = StoreSettings(patience=Patience.none())

_barrier: Any = None


def _prepare(barrier: Any) -> None:
    global _barrier  # noqa: PLW0603
    _barrier = barrier


def _begin(work: Callable[..., R], *args: Any) -> R:
    _barrier.wait(PATIENCE_S)
    return work(*args)


def in_processes(work: Callable[..., R], arguments: Sequence[Sequence[Any]]) -> list[R]:
    """Each in a process of its own, all beginning at the same moment."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(len(arguments))
    with ProcessPoolExecutor(len(arguments), context, initializer=_prepare, initargs=(barrier,)) as pool:
        futures = [pool.submit(_begin, work, *args) for args in arguments]
        return [future.result(PATIENCE_S) for future in futures]


def plain(data: bytes, content_type: str | None) -> bytes:
    return data


def offer_if_absent(dsn: str, keys: list[str], name: str) -> list[Outcome]:
    store = PostgresStore(dsn, settings=STRICT)
    try:
        return [store.offer(QUEUE, Draft(key, name.encode(), conflict=KEEP)) for key in keys]
    finally:
        store.close()


def drain(dsn: str) -> list[str]:
    """Lease and ack until there is nothing; the keys that were acked here."""
    store = PostgresStore(dsn, settings=STRICT)
    acked: list[str] = []
    try:
        while leases := store.lease(QUEUE, 3, plain):
            answers = store.ack(QUEUE, [lease.hold for lease in leases])
            acked += [lease.key for lease, answer in zip(leases, answers, strict=True) if answer is Settled.DONE]
        return acked
    finally:
        store.close()


def offer_keys(dsn: str, keys: list[str], name: str, threads: int) -> Counter[Outcome]:
    """Every key once by each of a few threads, with a payload that nobody else has."""
    store = PostgresStore(dsn, settings=STRICT)

    def run(thread: int) -> list[Outcome]:
        return [store.offer(QUEUE, Draft(key, f"{name}/{thread}/{i}".encode())) for i, key in enumerate(keys)]

    try:
        with ThreadPoolExecutor(threads) as pool:
            return Counter(outcome for answers in pool.map(run, range(threads)) for outcome in answers)
    finally:
        store.close()


def shuffle_batches(dsn: str, seed: int, rounds: int) -> Counter[str]:
    """Batches of the same few keys in a different order each time: offered, leased, and settled in every way."""
    store = PostgresStore(dsn, settings=STRICT)
    chance = random.Random(seed)
    keys = [f"k{i:02d}" for i in range(60)]
    said: Counter[str] = Counter()
    try:
        for i in range(rounds):
            batch = chance.sample(keys, 40)
            said.update(o.value for o in store.offer_many(QUEUE, [Draft(key, b"%d/%d" % (seed, i)) for key in batch]))
            leases = store.lease(QUEUE, 20, plain)
            chance.shuffle(leases)
            holds = [lease.hold for lease in leases]
            said.update(answer.value for answer in store.touch(QUEUE, holds))
            chance.shuffle(holds)
            said.update(answer.value for answer in store.ack(QUEUE, holds[:10]))
            said.update(answer.value for answer in store.nack(QUEUE, [Failure(hold) for hold in holds[10:15]]))
            said.update(answer.value for answer in store.release(QUEUE, holds[15:]))
        return said
    finally:
        store.close()
