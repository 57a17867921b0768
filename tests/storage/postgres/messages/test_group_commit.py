"""Group commit in the client: what many tasks ask for at once is one statement, and each gets its own answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence
from typing import Any, TypeVar

import psycopg
import pytest

from tarry.core.errors import StoreUnavailable
from tarry.core.messages import Draft
from tarry.core.outcomes import Outcome, Settled
from tarry.core.settings import QueueSettings, StoreSettings
from tarry.storage.postgres.aio import AsyncPostgresStore
from tarry.storage.postgres.gather import LARGEST, Gatherer

QUEUE = "gathered"
R = TypeVar("R")


class Flushing:
    """A flush that the test lets go on, and that remembers what it was given."""

    def __init__(self, *, open: bool = True) -> None:
        self.batches: list[list[str]] = []
        self.gate = asyncio.Event()
        self.entered = asyncio.Event()
        if open:
            self.gate.set()

    async def __call__(self, items: Sequence[str], *, again: bool = False, brief: bool = False) -> list[str]:
        self.batches.append(list(items))
        self.entered.set()
        await self.gate.wait()
        if "down" in items:
            raise StoreUnavailable("the database cannot be reached")
        if "bad" in items:
            raise ValueError("bad")
        return [f"answer to {item}" for item in items]


def gathering(flush: Flushing, identity: Callable[[str], Hashable] = lambda item: item) -> Gatherer[str, str]:
    async def none_locked(items: Sequence[str]) -> list[bool]:
        return [False] * len(items)

    return Gatherer(flush, identity=identity, locked=none_locked, lock_for_s=1.0)


async def waiting(gatherer: Gatherer[str, str], flush: Flushing, items: Sequence[str]) -> list[asyncio.Task[str]]:
    """One task for each item: the first is being flushed, and the rest has arrived meanwhile."""
    tasks = [asyncio.create_task(gatherer.submit(items[0]))]
    await flush.entered.wait()
    tasks += [asyncio.create_task(gatherer.submit(item)) for item in items[1:]]
    await asyncio.sleep(0)  # one turn of the loop: every task has handed in its item
    return tasks


def ran(work: Callable[[], Coroutine[Any, Any, R]]) -> R:
    return asyncio.run(work())


def test_a_single_caller_waits_for_nobody() -> None:
    async def work() -> None:
        flush = Flushing()
        assert await gathering(flush).submit("a") == "answer to a"
        assert flush.batches == [["a"]]

    ran(work)


def test_what_arrives_while_a_flush_is_under_way_goes_with_the_next_in_order() -> None:
    async def work() -> None:
        flush = Flushing(open=False)
        gatherer = gathering(flush)
        items = [f"i{n}" for n in range(100)]
        tasks = await waiting(gatherer, flush, items)
        flush.gate.set()
        assert await asyncio.gather(*tasks) == [f"answer to {item}" for item in items]
        assert flush.batches == [items[:1], items[1:]]

    ran(work)


def test_one_flush_is_bounded() -> None:
    async def work() -> None:
        flush = Flushing(open=False)
        gatherer = gathering(flush)
        tasks = await waiting(gatherer, flush, [f"i{n}" for n in range(1 + 2 * LARGEST + 7)])
        flush.gate.set()
        await asyncio.gather(*tasks)
        assert [len(batch) for batch in flush.batches] == [1, LARGEST, LARGEST, 7]

    ran(work)


def test_the_same_identity_never_shares_a_flush_and_keeps_its_order() -> None:
    async def work() -> None:
        flush = Flushing(open=False)
        gatherer = gathering(flush, identity=lambda item: item[0])
        tasks = await waiting(gatherer, flush, ["z1", "a1", "a2", "b1", "a3", "b2"])
        flush.gate.set()
        await asyncio.gather(*tasks)
        assert flush.batches == [["z1"], ["a1", "b1"], ["a2", "b2"], ["a3"]]

    ran(work)


def test_one_bad_item_fails_alone() -> None:
    async def work() -> None:
        flush = Flushing(open=False)
        gatherer = gathering(flush)
        tasks = await waiting(gatherer, flush, ["first", "a", "bad", "b"])
        flush.gate.set()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert [str(answer) for answer in answers] == ["answer to first", "answer to a", "bad", "answer to b"]
        assert isinstance(answers[2], ValueError)

    ran(work)


def test_when_the_database_is_away_everybody_is_told_at_once() -> None:
    """None of them is to blame: to try each alone would take all of them through the whole patience, one by one."""

    async def work() -> None:
        flush = Flushing(open=False)
        gatherer = gathering(flush)
        tasks = await waiting(gatherer, flush, ["first", "a", "down", "b"])
        flush.gate.set()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert answers[0] == "answer to first"
        assert [type(answer) for answer in answers[1:]] == [StoreUnavailable] * 3
        assert flush.batches == [["first"], ["a", "down", "b"]]

    ran(work)


def test_after_a_failure_the_next_caller_is_served() -> None:
    async def work() -> None:
        gatherer = gathering(Flushing())
        with pytest.raises(ValueError, match="bad"):
            await gatherer.submit("bad")
        assert await gatherer.submit("a") == "answer to a"

    ran(work)


def test_a_caller_that_gave_up_before_its_flush_is_not_flushed() -> None:
    async def work() -> None:
        flush = Flushing(open=False)
        gatherer = gathering(flush)
        tasks = await waiting(gatherer, flush, ["first", "a", "gone", "b"])
        tasks[2].cancel()
        await asyncio.wait([tasks[2]])
        flush.gate.set()
        await asyncio.gather(tasks[0], tasks[1], tasks[3])
        assert flush.batches == [["first"], ["a", "b"]]

    ran(work)


def test_a_caller_that_gives_up_during_its_flush_disturbs_nobody() -> None:
    async def work() -> None:
        flush = Flushing(open=False)
        gatherer = gathering(flush)
        tasks = await waiting(gatherer, flush, ["first", "a"])
        tasks[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]
        flush.gate.set()
        assert await tasks[1] == "answer to a"

    ran(work)


def test_a_flush_that_is_cancelled_leaves_nobody_waiting() -> None:
    async def work() -> None:
        flush = Flushing(open=False)
        gatherer = gathering(flush)
        tasks = await waiting(gatherer, flush, ["first", "a", "b"])
        (flusher,) = [task for task in asyncio.all_tasks() if task.get_name() == "tarry-gather"]
        flusher.cancel()
        done, pending = await asyncio.wait(tasks, timeout=10)
        assert not pending
        assert all(task.cancelled() for task in done)
        flush.gate.set()
        assert await gatherer.submit("c") == "answer to c"

    ran(work)


def test_draining_waits_until_everything_is_answered() -> None:
    async def work() -> None:
        flush = Flushing(open=False)
        gatherer = gathering(flush)
        tasks = await waiting(gatherer, flush, ["first", "a", "b"])
        draining = asyncio.create_task(gatherer.drain(60.0))
        await asyncio.sleep(0)
        assert not draining.done()
        flush.gate.set()
        await draining
        assert all(task.done() for task in tasks)
        await gatherer.drain(60.0)

    ran(work)


def test_draining_cancels_what_is_not_answered_in_time() -> None:
    async def work() -> None:
        flush = Flushing(open=False)
        gatherer = gathering(flush)
        tasks = await waiting(gatherer, flush, ["first", "a"])
        await gatherer.drain(0.01)
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(answer) for answer in answers] == [asyncio.CancelledError] * 2

    ran(work)


def with_store(dsn: str, work: Callable[[AsyncPostgresStore], Awaitable[R]]) -> R:
    async def run() -> R:
        store = AsyncPostgresStore(dsn, settings=StoreSettings())
        await store.open()
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(run())


def commits(dsn: str, kind: str) -> int:
    """How many transactions wrote events of a kind."""
    with psycopg.connect(dsn) as conn:
        row = conn.execute("select count(distinct xid) from tarry.event where kind = %s::tarry.event_kind", (kind,))
        found = row.fetchone()
    assert found is not None
    return found[0]


def test_offers_and_acks_of_many_tasks_share_commits(database: str) -> None:
    n = 500

    async def work(store: AsyncPostgresStore) -> None:
        offers = [store.offer(QUEUE, Draft(f"k{i:03d}", b"%d" % i)) for i in range(n)]
        assert await asyncio.gather(*offers) == [Outcome.CREATED] * n
        leases = await store.lease(QUEUE, n, lambda data, _: data)
        assert sorted(lease.payload for lease in leases) == sorted(b"%d" % i for i in range(n))
        assert await asyncio.gather(*(store.ack(QUEUE, [lease.hold]) for lease in leases)) == [[Settled.DONE]] * n

    with_store(database, work)
    assert commits(database, "offered") <= 3
    assert commits(database, "acked") <= 3


def test_offers_of_one_key_by_many_tasks_are_answered_as_if_alone(database: str) -> None:
    async def work(store: AsyncPostgresStore) -> list[Outcome]:
        return await asyncio.gather(*(store.offer(QUEUE, Draft("k", b"%d" % i)) for i in range(20)))

    answers = with_store(database, work)
    assert answers == [Outcome.CREATED] + [Outcome.UPDATED] * 19
    assert commits(database, "updated") == 19


def test_one_refused_offer_does_not_take_the_others_with_it(database: str) -> None:
    async def work(store: AsyncPostgresStore) -> None:
        drafts = [Draft(f"k{i}", b"", priority=11 if i == 25 else 0) for i in range(50)]
        answers = await asyncio.gather(*(store.offer(QUEUE, draft) for draft in drafts), return_exceptions=True)
        assert isinstance(answers.pop(25), psycopg.errors.CheckViolation)
        assert answers == [Outcome.CREATED] * 49
        assert (await store.counts(QUEUE)).ready.n == 49

    with_store(database, work)


def test_the_same_ack_by_two_tasks_is_done_once(database: str) -> None:
    async def work(store: AsyncPostgresStore) -> None:
        await store.offer(QUEUE, Draft("k", b""))
        (lease,) = await store.lease(QUEUE, 1, lambda data, _: data)
        answers = await asyncio.gather(*(store.ack(QUEUE, [lease.hold]) for _ in range(5)))
        assert answers == [[Settled.DONE]] + [[Settled.GONE]] * 4

    with_store(database, work)


def test_closing_waits_for_what_was_asked_for(database: str) -> None:
    async def work() -> list[Outcome]:
        store = AsyncPostgresStore(database, settings=StoreSettings())
        await store.open()
        offers = [asyncio.create_task(store.offer(QUEUE, Draft(f"k{i}", b""))) for i in range(100)]
        await asyncio.sleep(0)  # one turn of the loop: every offer was made
        await store.close()
        return await asyncio.gather(*offers)

    assert asyncio.run(work()) == [Outcome.CREATED] * 100


def test_an_offer_in_the_callers_transaction_is_not_gathered(database: str) -> None:
    async def work(store: AsyncPostgresStore) -> None:
        await store.create_queue(QUEUE, QueueSettings(), exist_ok=False)
        async with await psycopg.AsyncConnection.connect(database) as conn:
            await store.offer(QUEUE, Draft("mine", b""), conn=conn)
            await asyncio.gather(*(store.offer(QUEUE, Draft(f"k{i}", b"")) for i in range(10)))
            await conn.rollback()
        assert not await store.contains(QUEUE, "mine")
        assert (await store.counts(QUEUE)).ready.n == 10

    with_store(database, work)
