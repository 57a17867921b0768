"""Group commit in the client: the calls of many tasks are one statement, and each gets its own outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence
from typing import Any, TypeVar

import psycopg
import pytest

from tarry.core.errors import StoreUnavailable
from tarry.core.messages.model import Draft
from tarry.core.messages.outcomes import Outcome, Settled
from tarry.core.settings import QueueSettings, StoreSettings
from tarry.storage.postgres.messages.group_commit import LARGEST, GroupCommit
from tarry.storage.postgres.store import AsyncPostgresStore

QUEUE = "gathered"
R = TypeVar("R")


class Flushing:
    """A flush that the test lets go on, and that remembers what it was given."""

    def __init__(self, *, open: bool = True) -> None:
        self.batches: list[list[str]] = []
        self.proceed = asyncio.Event()
        self.entered = asyncio.Event()
        if open:
            self.proceed.set()

    async def __call__(self, items: Sequence[str], *, again: bool = False, brief: bool = False) -> list[str]:
        self.batches.append(list(items))
        self.entered.set()
        await self.proceed.wait()
        if "down" in items:
            raise StoreUnavailable("the database cannot be reached")
        if "bad" in items:
            raise ValueError("bad")
        return [f"answer to {item}" for item in items]


def gathering(flush: Flushing, identity: Callable[[str], Hashable] = lambda item: item) -> GroupCommit[str, str]:
    async def none_locked(items: Sequence[str]) -> list[bool]:
        return [False] * len(items)

    return GroupCommit(flush, identity=identity, locked=none_locked, lock_for_s=1.0)


async def submitted(group_commit: GroupCommit[str, str], item: str) -> str:
    return await group_commit.submit(item)


async def waiting(
    group_commit: GroupCommit[str, str], flush: Flushing, items: Sequence[str]
) -> list[asyncio.Task[str]]:
    """One task for each item: the first is being flushed, and the rest has arrived meanwhile."""
    tasks = [asyncio.create_task(submitted(group_commit, items[0]))]
    await flush.entered.wait()
    tasks += [asyncio.create_task(submitted(group_commit, item)) for item in items[1:]]
    await asyncio.sleep(0)  # one turn of the loop: every task has handed in its item
    return tasks


def ran(work: Callable[[], Coroutine[Any, Any, R]]) -> R:
    return asyncio.run(work())


def test_a_single_caller_does_not_wait_for_others() -> None:
    async def work() -> None:
        flush = Flushing()
        assert await gathering(flush).submit("a") == "answer to a"
        assert flush.batches == [["a"]]

    ran(work)


def test_what_arrives_while_a_flush_is_under_way_goes_with_the_next_in_order() -> None:
    async def work() -> None:
        flush = Flushing(open=False)
        group_commit = gathering(flush)
        items = [f"i{n}" for n in range(100)]
        tasks = await waiting(group_commit, flush, items)
        flush.proceed.set()
        assert await asyncio.gather(*tasks) == [f"answer to {item}" for item in items]
        assert flush.batches == [items[:1], items[1:]]

    ran(work)


def test_an_item_takes_no_turn_of_the_event_loop_but_that_of_its_task() -> None:
    async def work() -> None:
        loop, turns = asyncio.get_running_loop(), 0
        call_soon = loop.call_soon

        def counted(*args: Any, **kwargs: Any) -> asyncio.Handle:
            nonlocal turns
            turns += 1
            return call_soon(*args, **kwargs)

        loop.call_soon = counted  # pyright: ignore[reportAttributeAccessIssue]
        flush = Flushing()
        group_commit = gathering(flush)
        tasks = [asyncio.create_task(submitted(group_commit, f"{i}")) for i in range(100)]
        for task in tasks:
            await task
        assert turns < 100 + 100 + 20  # to begin, to go on with the result, and those of flushes
        assert len(flush.batches) <= 2

    ran(work)


def test_one_flush_is_bounded() -> None:
    async def work() -> None:
        flush = Flushing(open=False)
        group_commit = gathering(flush)
        tasks = await waiting(group_commit, flush, [f"i{n}" for n in range(1 + 2 * LARGEST + 7)])
        flush.proceed.set()
        await asyncio.gather(*tasks)
        assert [len(batch) for batch in flush.batches] == [1, LARGEST, LARGEST, 7]

    ran(work)


def test_the_same_identity_never_shares_a_flush_and_keeps_its_order() -> None:
    async def work() -> None:
        flush = Flushing(open=False)
        group_commit = gathering(flush, identity=lambda item: item[0])
        tasks = await waiting(group_commit, flush, ["z1", "a1", "a2", "b1", "a3", "b2"])
        flush.proceed.set()
        await asyncio.gather(*tasks)
        assert flush.batches == [["z1"], ["a1", "b1"], ["a2", "b2"], ["a3"]]

    ran(work)


def test_one_bad_item_fails_alone() -> None:
    async def work() -> None:
        flush = Flushing(open=False)
        group_commit = gathering(flush)
        tasks = await waiting(group_commit, flush, ["first", "a", "bad", "b"])
        flush.proceed.set()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert [str(outcome) for outcome in outcomes] == ["answer to first", "answer to a", "bad", "answer to b"]
        assert isinstance(outcomes[2], ValueError)

    ran(work)


def test_when_the_database_is_unavailable_every_caller_fails_at_once() -> None:
    """If the database is unavailable, the whole batch fails: retrying items one by one would repeat the timeout."""

    async def work() -> None:
        flush = Flushing(open=False)
        group_commit = gathering(flush)
        tasks = await waiting(group_commit, flush, ["first", "a", "down", "b"])
        flush.proceed.set()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert outcomes[0] == "answer to first"
        assert [type(outcome) for outcome in outcomes[1:]] == [StoreUnavailable] * 3
        assert flush.batches == [["first"], ["a", "down", "b"]]

    ran(work)


def test_after_a_failure_the_next_caller_is_served() -> None:
    async def work() -> None:
        group_commit = gathering(Flushing())
        with pytest.raises(ValueError, match="bad"):
            await group_commit.submit("bad")
        assert await group_commit.submit("a") == "answer to a"

    ran(work)


def test_a_caller_that_gave_up_before_its_flush_is_not_flushed() -> None:
    async def work() -> None:
        flush = Flushing(open=False)
        group_commit = gathering(flush)
        tasks = await waiting(group_commit, flush, ["first", "a", "gone", "b"])
        tasks[2].cancel()
        await asyncio.wait([tasks[2]])
        flush.proceed.set()
        await asyncio.gather(tasks[0], tasks[1], tasks[3])
        assert flush.batches == [["first"], ["a", "b"]]

    ran(work)


def test_a_caller_that_is_cancelled_during_its_flush_affects_no_other() -> None:
    async def work() -> None:
        flush = Flushing(open=False)
        group_commit = gathering(flush)
        tasks = await waiting(group_commit, flush, ["first", "a"])
        tasks[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]
        flush.proceed.set()
        assert await tasks[1] == "answer to a"

    ran(work)


def test_a_flush_that_is_cancelled_leaves_no_caller_waiting() -> None:
    async def work() -> None:
        flush = Flushing(open=False)
        group_commit = gathering(flush)
        tasks = await waiting(group_commit, flush, ["first", "a", "b"])
        (flusher,) = [task for task in asyncio.all_tasks() if task.get_name() == "tarry-group-commit"]
        flusher.cancel()
        done, pending = await asyncio.wait(tasks, timeout=10)
        assert not pending
        assert all(task.cancelled() for task in done)
        flush.proceed.set()
        assert await group_commit.submit("c") == "answer to c"

    ran(work)


def test_draining_waits_until_every_item_has_its_outcome() -> None:
    async def work() -> None:
        flush = Flushing(open=False)
        group_commit = gathering(flush)
        tasks = await waiting(group_commit, flush, ["first", "a", "b"])
        draining = asyncio.create_task(group_commit.drain(60.0))
        await asyncio.sleep(0)
        assert not draining.done()
        flush.proceed.set()
        await draining
        assert all(task.done() for task in tasks)
        await group_commit.drain(60.0)

    ran(work)


def test_draining_cancels_items_without_an_outcome_in_time() -> None:
    async def work() -> None:
        flush = Flushing(open=False)
        group_commit = gathering(flush)
        tasks = await waiting(group_commit, flush, ["first", "a"])
        await group_commit.drain(0.01)
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [asyncio.CancelledError] * 2

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
        value = row.fetchone()
    assert value is not None
    return value[0]


def test_offers_and_acks_of_many_tasks_share_commits(database: str) -> None:
    n = 500

    async def work(store: AsyncPostgresStore) -> None:
        offers = [store.run(store.messages.offer(QUEUE, Draft(f"k{i:03d}", b"%d" % i))) for i in range(n)]
        assert await asyncio.gather(*offers) == [Outcome.CREATED] * n
        leases = await store.run(store.messages.poll(QUEUE, n, lambda data, _: data))
        assert sorted(lease.payload for lease in leases) == sorted(b"%d" % i for i in range(n))
        assert (
            await asyncio.gather(*(store.run(store.messages.ack(QUEUE, [lease.lease_id])) for lease in leases))
            == [[Settled.DONE]] * n
        )

    with_store(database, work)
    assert commits(database, "offered") <= 3
    assert commits(database, "acked") <= 3


def test_offers_of_one_key_by_many_tasks_have_the_outcomes_of_single_ones(database: str) -> None:
    async def work(store: AsyncPostgresStore) -> list[Outcome]:
        return await asyncio.gather(*(store.run(store.messages.offer(QUEUE, Draft("k", b"%d" % i))) for i in range(20)))

    outcomes = with_store(database, work)
    assert outcomes == [Outcome.CREATED] + [Outcome.UPDATED] * 19
    assert commits(database, "updated") == 19


def test_one_refused_offer_does_not_take_the_others_with_it(database: str) -> None:
    async def work(store: AsyncPostgresStore) -> None:
        drafts = [Draft(f"k{i}", b"", priority=11 if i == 25 else 0) for i in range(50)]
        outcomes = await asyncio.gather(
            *(store.run(store.messages.offer(QUEUE, draft)) for draft in drafts), return_exceptions=True
        )
        assert isinstance(outcomes.pop(25), psycopg.errors.CheckViolation)
        assert outcomes == [Outcome.CREATED] * 49
        assert (await store.run(store.queues.counts(QUEUE))).ready.n == 49

    with_store(database, work)


def test_the_same_ack_by_two_tasks_is_done_once(database: str) -> None:
    async def work(store: AsyncPostgresStore) -> None:
        await store.run(store.messages.offer(QUEUE, Draft("k", b"")))
        (lease,) = await store.run(store.messages.poll(QUEUE, 1, lambda data, _: data))
        outcomes = await asyncio.gather(*(store.run(store.messages.ack(QUEUE, [lease.lease_id])) for _ in range(5)))
        assert outcomes == [[Settled.DONE]] + [[Settled.GONE]] * 4

    with_store(database, work)


def test_closing_waits_for_submitted_items(database: str) -> None:
    async def work() -> list[Outcome]:
        store = AsyncPostgresStore(database, settings=StoreSettings())
        await store.open()
        offers = [asyncio.create_task(store.run(store.messages.offer(QUEUE, Draft(f"k{i}", b"")))) for i in range(100)]
        await asyncio.sleep(0)  # one turn of the loop: every offer was made
        await store.close()
        return await asyncio.gather(*offers)

    assert asyncio.run(work()) == [Outcome.CREATED] * 100


def test_an_offer_in_the_callers_transaction_is_not_gathered(database: str) -> None:
    async def work(store: AsyncPostgresStore) -> None:
        await store.run(store.queues.create(QUEUE, QueueSettings(), exist_ok=False))
        async with await psycopg.AsyncConnection.connect(database) as conn:
            await store.run(store.messages.offer(QUEUE, Draft("mine", b"")), conn=conn)
            await asyncio.gather(*(store.run(store.messages.offer(QUEUE, Draft(f"k{i}", b""))) for i in range(10)))
            await conn.rollback()
        assert not await store.run(store.messages.contains(QUEUE, "mine"))
        assert (await store.run(store.queues.counts(QUEUE))).ready.n == 10

    with_store(database, work)
