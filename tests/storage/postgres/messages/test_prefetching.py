"""Messages leased ahead of their turn: never too many, never too old, and given back unstarted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tarry.api._sync.delivery import Delivery
from tarry.api._sync.queue import Queue
from tarry.api.prefetch import LARGEST, Prefetched
from tarry.app import App, AsyncApp
from tarry.core.codecs import codec_for
from tarry.core.errors import InvalidInput
from tarry.storage.postgres._sync.store import PostgresStore
from tarry.storage.postgres.store import AsyncPostgresStore
from tests.kit.calls import call_of, replace_call
from tests.kit.settings import FOR_TESTS

QUEUE = "ahead"
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
LEASE = timedelta(seconds=30)


@pytest.fixture
def app(database: str) -> Iterator[App]:
    with App(PostgresStore(database, settings=FOR_TESTS), dsn=database) as app:
        yield app


def delivery(name: str, lease_for: timedelta = LEASE) -> Any:
    return SimpleNamespace(key=name, leased_at=NOON, lease_until=NOON + lease_for)


def held(*deliveries: Any, polled_s: float = 100.0) -> Prefetched[Any]:
    prefetched: Prefetched[Any] = Prefetched(10)
    prefetched.fill(deliveries, polled_s, polled_s)
    return prefetched


def taken(prefetched: Prefetched[Any], now_s: float) -> str | None:
    got = prefetched.take(now_s)
    return None if got is None else got.key


@pytest.mark.parametrize("size", [0, -1, LARGEST + 1])
def test_a_prefetch_of_nothing_or_of_everything_is_rejected(size: int) -> None:
    with pytest.raises(InvalidInput, match="prefetch must be between 1 and"):
        Prefetched(size)


def test_they_are_handed_out_in_order_while_half_of_their_lease_is_left() -> None:
    prefetched = held(delivery("a"), delivery("b"), delivery("c"))
    assert taken(prefetched, 100.0) == "a"
    assert taken(prefetched, 115.0) == "b"
    assert taken(prefetched, 115.001) is None
    assert [rest.key for rest in prefetched.rest()] == ["c"]


def test_while_something_is_prefetched_a_look_is_due_twice_a_second() -> None:
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

    return Message(key=f"k{i:03d}", payload=i)


def test_a_consumer_leases_no_more_than_it_prefetches(app: App) -> None:
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
    assert [(got.key, got.attempt) for got in again] == [(f"k{i:03d}", 1) for i in range(1, 10)]


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
    queue = Queue(app.store, QUEUE, codec_for(None), timer=time.elapsed_s)
    look = queue._leased

    def look_after_a_long_wait(*args: Any, **options: Any) -> Any:
        if not (leases := look(*args, **options)):
            time.now_s += 3_600
            offer(app, 1)
        return leases

    monkeypatch.setattr(queue, "_leased", look_after_a_long_wait)
    deliveries = queue.consume(lease_for=timedelta(seconds=60))
    assert next(deliveries).key == "k000"
    assert [event.kind.value for event in app.store.run(app.store.journal.timeline(QUEUE, "k000"))] == [
        "offered",
        "leased",
    ]
    closed(deliveries)


def test_a_slow_consumer_gets_fresh_leases_instead_of_stale_ones(app: App) -> None:
    time = Time()
    offer(app, 3)
    deliveries = Queue(app.store, QUEUE, codec_for(None), timer=time.elapsed_s).consume(
        prefetch=3, lease_for=timedelta(seconds=60)
    )
    first = next(deliveries)
    before = {got.key: got.token for got in [first]}
    time.now_s += 31
    second = next(deliveries)
    assert (first.key, second.key) == ("k000", "k001")
    assert second.attempt == 1, "it was given back and leased anew"
    assert second.token not in before.values()
    assert str(second.ack()) == "Settled.DONE"
    closed(deliveries)


class TestWithoutAFixedSize:
    """As many as the loop handles in 50 ms, and nothing is kept from others for much longer."""

    def handle(self, prefetched: Prefetched[Any], took_s: float, times: int) -> list[int]:
        """How many are polled after each message."""
        sizes: list[int] = []
        for _ in range(times):
            prefetched.fill([delivery("a")], 0.0, 0.0)
            assert taken(prefetched, 0.0) == "a"
            assert taken(prefetched, took_s) is None
            sizes.append(prefetched.size)
        return sizes

    def test_it_begins_with_one_and_grows_up_to_fifty(self) -> None:
        prefetched: Prefetched[Any] = Prefetched(None)
        assert prefetched.size == 1
        sizes = self.handle(prefetched, 0.0, 60)
        assert sizes[:3] == [8, 50, 50]
        assert sizes == sorted(sizes)

    @pytest.mark.parametrize(
        ("took_s", "size"), [(0.0005, 50), (0.0011, 46), (0.011, 5), (0.026, 2), (0.051, 1), (10.0, 1)]
    )
    def test_it_follows_the_time_that_a_message_takes(self, took_s: float, size: int) -> None:
        prefetched: Prefetched[Any] = Prefetched(None)
        assert self.handle(prefetched, took_s, 60)[-1] == size
        self.handle(prefetched, 0.0, 60)
        assert self.handle(prefetched, took_s, 60)[-1] == size

    def test_one_slow_message_makes_it_careful(self) -> None:
        prefetched: Prefetched[Any] = Prefetched(None)
        self.handle(prefetched, 0.0, 60)
        assert self.handle(prefetched, 1.0, 1) == [1]

    def test_what_waited_for_a_slow_message_is_given_back(self) -> None:
        prefetched: Prefetched[Any] = Prefetched(None)
        prefetched.fill([delivery(key) for key in "abcd"], 95.0, 100.0)
        assert taken(prefetched, 100.0) == "a", "however long the poll took"
        assert taken(prefetched, 100.09) == "b"
        assert taken(prefetched, 100.11) is None
        assert [rest.key for rest in prefetched.rest()] == ["c", "d"]

    def test_a_fast_consumer_polls_seldom_and_a_slow_one_leases_nothing_else(
        self, app: App, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        time = Time()
        queue = Queue(app.store, QUEUE, codec_for(None), timer=time.elapsed_s)
        polls: list[int] = []
        poll = queue._messages.poll

        def counted(name: str, n: int, *args: Any) -> Any:
            polls.append(n)
            return poll(name, n, *args)

        monkeypatch.setattr(queue._messages, "poll", counted)
        app.queue(QUEUE).offer_many([message(i) for i in range(700)])
        deliveries = queue.consume()
        keys: list[str] = []
        for _ in range(600):
            got = next(deliveries)
            keys.append(got.key)
            got.ack()
            time.now_s += 0.0005
        assert keys == sorted(keys)
        assert polls == [1, 8, *[50] * 12], "one by one it would be 600"
        got = next(deliveries)
        got.ack()
        time.now_s += 1.0
        assert next(deliveries).ack().value == "done"
        assert polls[-1] == 1
        assert numbers(app)[1] == 0, "nothing is leased but what it works on"
        closed(deliveries)


def awaited(dsn: str, work: Callable[[AsyncApp], Awaitable[None]]) -> None:
    async def run() -> None:
        store = AsyncPostgresStore(dsn, settings=FOR_TESTS)
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


def test_a_task_that_is_cancelled_while_it_waits_for_messages_leases_nothing(app: App) -> None:
    async def work(awaiting: AsyncApp) -> None:
        queue = awaiting.queue(QUEUE)
        looked = asyncio.Event()
        wait = call_of(awaiting.store, "wakeup.announce")

        async def watched(*args: Any, **kwargs: Any) -> Any:
            looked.set()
            return await wait(*args, **kwargs)

        replace_call(awaiting.store, "wakeup.announce", watched)

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
