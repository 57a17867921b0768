"""Messages leased ahead of their turn: never too many, never too old, and given back unstarted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tarry.app import App, AsyncApp
from tarry.core.errors import InvalidInput
from tarry.core.settings import StoreSettings
from tarry.handles.delivery import Delivery
from tarry.handles.prefetching import LARGEST, Prefetched
from tarry.storage.postgres.aio import AsyncPostgresStore
from tarry.storage.postgres.sync import PostgresStore

QUEUE = "ahead"
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
LEASE = timedelta(seconds=30)


@pytest.fixture
def app(database: str) -> Iterator[App]:
    with App(PostgresStore(database, settings=StoreSettings.for_tests()), dsn=database) as app:
        yield app


def delivery(name: str, lease_for: timedelta = LEASE) -> Any:
    return SimpleNamespace(key=name, leased_at=NOON, lease_until=NOON + lease_for)


def held(*deliveries: Any, asked_s: float = 100.0) -> Prefetched[Any]:
    prefetched: Prefetched[Any] = Prefetched(10)
    prefetched.fill(deliveries, asked_s)
    return prefetched


def taken(prefetched: Prefetched[Any], now_s: float) -> str | None:
    got = prefetched.take(now_s)
    return None if got is None else got.key


@pytest.mark.parametrize("size", [0, -1, LARGEST + 1])
def test_nobody_prefetches_nothing_or_everything(size: int) -> None:
    with pytest.raises(InvalidInput, match="prefetch must be between 1 and"):
        Prefetched(size)


def test_they_are_handed_out_in_order_while_half_of_their_lease_is_left() -> None:
    prefetched = held(delivery("a"), delivery("b"), delivery("c"))
    assert taken(prefetched, 100.0) == "a"
    assert taken(prefetched, 115.0) == "b"
    assert taken(prefetched, 115.001) is None
    assert [rest.key for rest in prefetched.rest()] == ["c"]


def test_while_something_is_held_it_asks_for_a_pause_twice_a_second() -> None:
    prefetched = held(delivery("a"), delivery("b"))
    assert [prefetched.should_look(now_s) for now_s in (100.4, 100.5, 100.9, 101.0)] == [False, True, False, True]
    prefetched.rest()
    assert not prefetched.should_look(110.0)


def test_one_that_waited_too_long_does_not_keep_back_one_with_a_longer_lease() -> None:
    prefetched = held(delivery("short", timedelta(seconds=2)), delivery("long"))
    assert taken(prefetched, 110.0) == "long"
    assert [rest.key for rest in prefetched.rest()] == ["short"]


def test_the_rest_is_what_was_not_handed_out_once() -> None:
    prefetched = held(delivery("a"), delivery("b", timedelta(seconds=1)), delivery("c"), delivery("d"))
    prefetched.take(101.0)
    prefetched.take(101.0)
    assert [rest.key for rest in prefetched.rest()] == ["b", "d"]
    assert prefetched.rest() == []
    assert prefetched.take(101.0) is None


def numbers(app: App) -> tuple[int, int]:
    """Ready, and leased."""
    counts = app.queues.counts(QUEUE)
    return counts.ready.n, counts.leased.n


def offer(app: App, n: int) -> None:
    app.queue(QUEUE).offer_many([message(i) for i in range(n)])


def message(i: int) -> Any:
    from tarry import Message

    return Message(key=f"k{i:02d}", payload=i)


def test_a_consumer_holds_no_more_than_it_prefetches(app: App) -> None:
    offer(app, 25)
    deliveries = app.queue(QUEUE).consume(prefetch=10)
    for i in range(25):
        got = next(deliveries)
        assert got.payload == i
        leased = numbers(app)[1]
        assert leased <= 10
        got.ack()
    closed(deliveries)


def closed(deliveries: Iterator[Delivery[Any]]) -> None:
    cast("Any", deliveries).close()


def test_what_was_not_handed_out_is_given_back_and_no_attempt_is_counted(app: App) -> None:
    offer(app, 10)
    deliveries = app.queue(QUEUE).consume(prefetch=10)
    first, second = next(deliveries), next(deliveries)
    first.ack()
    assert numbers(app) == (0, 9)
    closed(deliveries)
    assert numbers(app) == (8, 1), "the second is still in its consumer's hands"
    second.release()
    again = app.queue(QUEUE).try_poll_many(10)
    assert [(got.key, got.attempt) for got in again] == [(f"k{i:02d}", 1) for i in range(1, 10)]


def test_leaving_the_loop_by_an_error_gives_back_as_well(app: App) -> None:
    offer(app, 5)

    def consume() -> None:
        for _ in app.queue(QUEUE).consume(prefetch=5):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        consume()
    assert numbers(app) == (4, 1)


class Time:
    """Time as a queue sees it, moved by the test."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def elapsed_s(self) -> float:
        return self.now_s


def test_what_came_after_a_long_wait_is_fresh(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lease began when it was leased, not when its consumer began to wait."""
    time = Time()
    monkeypatch.setattr("tarry.handles.queue.elapsed_s", time.elapsed_s)
    queue = app.queue(QUEUE)
    look = queue.try_poll_many

    def look_after_a_long_wait(*args: Any, **options: Any) -> Any:
        if not (found := look(*args, **options)):
            time.now_s += 3_600
            offer(app, 1)
        return found

    monkeypatch.setattr(queue, "try_poll_many", look_after_a_long_wait)
    deliveries = queue.consume(lease_for=timedelta(seconds=60))
    assert next(deliveries).key == "k00"
    assert [event.kind.value for event in app.store.timeline(QUEUE, "k00")] == ["offered", "leased"]
    closed(deliveries)


def test_a_slow_consumer_gets_fresh_leases_instead_of_stale_ones(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time()
    monkeypatch.setattr("tarry.handles.queue.elapsed_s", time.elapsed_s)
    offer(app, 3)
    deliveries = app.queue(QUEUE).consume(prefetch=3, lease_for=timedelta(seconds=60))
    first = next(deliveries)
    before = {got.key: got.token for got in [first]}
    time.now_s += 31
    second = next(deliveries)
    assert (first.key, second.key) == ("k00", "k01")
    assert second.attempt == 1, "it was given back and leased anew"
    assert second.token not in before.values()
    assert str(second.ack()) == "Settled.DONE"
    closed(deliveries)


def awaited(dsn: str, work: Callable[[AsyncApp], Awaitable[None]]) -> None:
    async def run() -> None:
        store = AsyncPostgresStore(dsn, settings=StoreSettings.for_tests())
        await store.open()
        async with AsyncApp(store, dsn=dsn) as app:
            await work(app)

    asyncio.run(run())


async def cancelled_in_the_middle(consume: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    begun = asyncio.Event()
    task = asyncio.create_task(consume(begun))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_cancelled_task_gives_back_what_it_had_not_begun_and_what_it_had(app: App) -> None:
    offer(app, 10)

    async def work(awaiting: AsyncApp) -> None:
        async def consume(begun: asyncio.Event) -> None:
            async with aclosing(cast("Any", awaiting.queue(QUEUE).consume(prefetch=10))) as deliveries:
                async for got in deliveries:
                    async with got:
                        begun.set()
                        await asyncio.Event().wait()

        await cancelled_in_the_middle(consume)
        assert numbers(app) == (10, 0)

    assert app.dsn is not None
    awaited(app.dsn, work)
    assert {got.attempt for got in app.queue(QUEUE).try_poll_many(10)} == {1}


def test_a_cancelled_task_gives_back_also_without_closing_its_consumer(app: App) -> None:
    offer(app, 10)

    async def work(awaiting: AsyncApp) -> None:
        async def consume(begun: asyncio.Event) -> None:
            async for got in awaiting.queue(QUEUE).consume(prefetch=10):
                async with got:
                    begun.set()
                    await asyncio.Event().wait()

        await cancelled_in_the_middle(consume)

    assert app.dsn is not None
    awaited(app.dsn, work)
    assert numbers(app) == (10, 0)


def test_a_task_that_is_cancelled_while_it_waits_for_messages_holds_nothing(app: App) -> None:
    async def work(awaiting: AsyncApp) -> None:
        queue = awaiting.queue(QUEUE)
        looked = asyncio.Event()
        wait = awaiting.store.wait

        async def watched(*args: Any, **kwargs: Any) -> Any:
            looked.set()
            return await wait(*args, **kwargs)

        awaiting.store.wait = watched  # type: ignore[method-assign]

        async def consume() -> None:
            async for _ in queue.consume(prefetch=10):
                raise AssertionError("there was nothing to consume")

        task = asyncio.create_task(consume())
        await looked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await queue.offer("later", 1)

    assert app.dsn is not None
    awaited(app.dsn, work)
    assert numbers(app) == (1, 0)


def test_an_awaiting_consumer_is_bounded_too(app: App) -> None:
    offer(app, 25)

    async def work(awaiting: AsyncApp) -> None:
        deliveries = awaiting.queue(QUEUE).consume(prefetch=10)
        for i in range(12):
            got = await anext(deliveries)
            assert got.payload == i
            assert numbers(app)[1] <= 10
            await got.ack()
        await cast("Any", deliveries).aclose()

    assert app.dsn is not None
    awaited(app.dsn, work)
    assert numbers(app) == (13, 0)
