"""One reader of the journal for many streams: what each of them gets, and what happens to one that does not read."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

from tarry.core.errors import StoreUnavailable
from tarry.core.journal.events import Event
from tarry.core.journal.positions import EventPage, GapReason
from tarry.core.messages.model import Draft
from tarry.services.live_events import hub as module
from tarry.services.live_events.hub import EventHub
from tarry.services.live_events.stream import Ending, EventFormat, Stream
from tarry.storage.memory import AsyncMemoryStore, MemoryStore
from tests.kit.calls import call_of, replace_call

TIMEOUT_S = 30.0


class Watched(AsyncMemoryStore):
    """Counts how often the journal is read."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.reads = 0
        self.is_away = False
        self.refused = asyncio.Event()

        self._tail = call_of(self, "journal.tail")
        replace_call(self, "journal.tail", self.tail)

    async def tail(self, after: str | None, **options: Any) -> EventPage:
        self.reads += 1
        await asyncio.sleep(0)  # as a database lets others run
        if self.is_away:
            self.refused.set()
            raise StoreUnavailable("away")
        return await self._tail(after, **options)

    async def make(self, *keys: str) -> None:
        await self.run(self.messages.offer_many("q", [Draft(key, b"1") for key in keys]))


def gap_block(position: str, gap: GapReason) -> bytes:
    return f"gap:{gap.value} ".encode()


def live_on(store: Watched, *, buffer: int = 100, most: int = 1_000, check_every: timedelta = timedelta(0)) -> EventHub:
    return EventHub(
        store,
        format=EventFormat(lambda position, event: f"{event.key or event.kind.value} ".encode(), gap_block),
        buffer=buffer,
        most=most,
        check_every=check_every,
    )


async def always_allowed() -> bool:
    return True


def anything(event: Event) -> bool:
    return True


async def got(stream: Stream, n: int) -> list[str]:
    """The next n, however they come."""
    items: list[str] = []
    while len(items) < n:
        assert await stream.wait(TIMEOUT_S)
        assert stream.ending is None
        items += stream.take(1).decode().split()
    return items


def played(story: Callable[[Watched], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        store = Watched()
        await store.make("before")
        async with asyncio.timeout(TIMEOUT_S):
            await story(store)

    asyncio.run(bounded())


def test_every_stream_gets_matching_events_after_it_joined() -> None:
    async def story(store: Watched) -> None:
        live = live_on(store)
        async with (
            live.stream(anything, allowed=always_allowed) as first,
            live.stream(lambda event: event.key == "b", allowed=always_allowed) as other,
        ):
            await live.join(first)
            await live.join(other)
            await store.make("a", "b")
            assert await got(first, 2) == ["a", "b"]
            assert await got(other, 1) == ["b"]
            async with live.stream(anything, allowed=always_allowed) as late:
                await live.join(late)
                await store.make("c")
                assert await got(late, 1) == ["c"]

    played(story)


def test_many_streams_cost_no_more_reading_than_one() -> None:
    async def story(store: Watched) -> None:
        live = live_on(store)
        async with contextlib.AsyncExitStack() as stack:
            streams = [
                await stack.enter_async_context(live.stream(anything, allowed=always_allowed)) for _ in range(50)
            ]
            before = store.reads
            await asyncio.gather(*(live.join(stream) for stream in streams))
            assert (
                store.reads - before <= 3
            )  # the first position, one for all streams that came together, the loop's own
            await store.make("a")
            before = store.reads
            assert [await got(stream, 1) for stream in streams] == [["a"]] * 50
            assert store.reads - before <= 3

    played(story)


def test_nothing_is_read_without_subscribers_and_those_events_are_not_replayed() -> None:
    async def story(store: Watched) -> None:
        live = live_on(store)
        async with live.stream(anything, allowed=always_allowed) as stream:
            await live.join(stream)
        assert (live.open, {task.get_name() for task in asyncio.all_tasks()} & {"live events"}) == (0, set())
        await store.make("in the night")
        async with live.stream(anything, allowed=always_allowed) as stream:
            await live.join(stream)
            await store.make("a")
            assert await got(stream, 1) == ["a"]

    played(story)


def test_one_that_does_not_read_is_ended_and_the_others_are_not() -> None:
    async def story(store: Watched) -> None:
        live = live_on(store, buffer=10)
        async with (
            live.stream(anything, allowed=always_allowed) as reader,
            live.stream(anything, allowed=always_allowed) as sleeper,
        ):
            await live.join(reader)
            await live.join(sleeper)
            ended = asyncio.Event()
            sleeper.on_end = ended.set
            for n in range(3):
                await store.make(*(f"{n}-{i}" for i in range(5)))
                assert len(await got(reader, 5)) == 5
            await ended.wait()
            assert (sleeper.ending, sleeper.take(1_000_000), reader.ending) == (Ending.SLOW, b"", None)
        assert live.cut_off == 1

    played(story)


def test_a_flood_larger_than_the_buffer_ends_no_stream_that_is_read() -> None:
    async def story(store: Watched) -> None:
        live = live_on(store, buffer=10)
        async with live.stream(anything, allowed=always_allowed) as stream:
            await live.join(stream)
            await store.make(*(f"k{i}" for i in range(500)))
            assert await got(stream, 500) == [f"k{i}" for i in range(500)]

    played(story)


def test_more_events_at_once_than_the_limit_are_a_gap_for_every_stream() -> None:
    async def story(store: Watched) -> None:
        live = live_on(store, most=20)
        async with live.stream(lambda event: event.key == "after", allowed=always_allowed) as stream:
            await live.join(stream)
            await store.make(*(f"k{i}" for i in range(21)))
            assert await got(stream, 1) == [f"gap:{GapReason.TOO_FAR}"]
            await store.make("after")
            assert await got(stream, 1) == ["after"]

    played(story)


def test_a_stream_whose_access_was_revoked_is_ended() -> None:
    async def story(store: Watched) -> None:
        live, allowed = live_on(store), True

        async def may() -> bool:
            return allowed

        async with live.stream(anything, allowed=may) as stream, live.stream(anything, allowed=always_allowed) as other:
            await live.join(stream)
            await live.join(other)
            allowed = False
            assert await stream.wait(TIMEOUT_S)
            assert (stream.ending, other.ending) == (Ending.REFUSED, None)

    played(story)


def test_after_an_outage_of_the_database_no_stream_has_lost_an_event(caplog: pytest.LogCaptureFixture) -> None:
    async def story(store: Watched) -> None:
        live = live_on(store)
        async with live.stream(anything, allowed=always_allowed) as stream:
            await live.join(stream)
            store.is_away = True
            await store.make("a")
            await store.refused.wait()
            store.is_away = False
            assert await got(stream, 1) == ["a"]

    played(story)
    assert "trying again" in caplog.text


def test_stopping_ends_open_streams_and_refuses_new_ones() -> None:
    async def story(store: Watched) -> None:
        live = live_on(store)
        async with live.stream(anything, allowed=always_allowed) as stream:
            await live.join(stream)
            live.stop()
            assert stream.ending is Ending.STOPPING
            async with live.stream(anything, allowed=always_allowed) as late:
                assert late.ending is Ending.STOPPING

    played(story)


def test_a_stream_that_fails_on_stop_does_not_keep_the_others_from_ending(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise RuntimeError("broken")

    async def story(store: Watched) -> None:
        live = live_on(store)
        async with contextlib.AsyncExitStack() as stack:
            streams = [await stack.enter_async_context(live.stream(anything, allowed=always_allowed)) for _ in range(5)]
            for stream in streams:
                stream.on_end = fail
            live.stop()
            assert [stream.ending for stream in streams] == [Ending.STOPPING] * 5

    played(story)
    assert "broken" in caplog.text


class Growing(Watched):
    """A journal that grows faster than it is read."""

    async def tail(self, after: str | None, **options: Any) -> EventPage:
        if after is not None:
            await self.make(*(f"k{i}" for i in range(2 * options["limit"])))
        return await super().tail(after, **options)


def test_while_the_reader_is_never_done_keys_are_looked_at_and_others_may_join() -> None:
    async def story(_: Watched) -> None:
        live, allowed = live_on(Growing(), buffer=5, most=1_000_000), True

        async def may() -> bool:
            return allowed

        def nothing(event: Event) -> bool:
            return False

        async with live.stream(nothing, allowed=may) as stream, live.stream(nothing, allowed=always_allowed) as late:
            await live.join(stream)
            await live.join(late)
            allowed = False
            assert await stream.wait(TIMEOUT_S)
            assert (stream.ending, late.ending) == (Ending.REFUSED, None)

    played(story)


def test_one_that_fails_is_ended_and_the_others_get_everything(caplog: pytest.LogCaptureFixture) -> None:
    def failing(event: Event) -> bool:
        raise RuntimeError("broken")

    async def story(store: Watched) -> None:
        live = live_on(store)
        async with contextlib.AsyncExitStack() as stack:
            wants = [anything, failing, anything, failing, anything]
            streams = [await stack.enter_async_context(live.stream(want, allowed=always_allowed)) for want in wants]
            for stream in streams:
                await live.join(stream)
            await store.make("a", "b")
            for stream in streams[::2]:
                assert await got(stream, 2) == ["a", "b"]
            assert [stream.ending for stream in streams[1::2]] == [Ending.FAILED] * 2

    played(story)
    assert "broken" in caplog.text


def test_readers_of_two_forms_share_one_reading_of_the_journal() -> None:
    shouted: list[str | None] = []

    def shout(position: str, event: Event) -> bytes:
        shouted.append(event.key)
        return f"{event.key}! ".encode()

    async def story(store: Watched) -> None:
        live, loud = live_on(store), EventFormat(shout, gap_block)
        async with (
            live.stream(anything, allowed=always_allowed) as plain,
            live.stream(anything, allowed=always_allowed, format=loud) as first,
            live.stream(anything, allowed=always_allowed, format=loud) as second,
        ):
            start = await live.join(plain)
            for stream in (first, second):
                await live.join(stream)
            await store.make("a", "b")
            assert await got(plain, 2) == ["a", "b"]
            assert await got(first, 2) == await got(second, 2) == ["a!", "b!"]
            assert shouted == ["a", "b"], "written down once for both"
            assert [page.text async for page in live.replay(first, start)] == [b"a! b! "]

    played(story)


def test_an_event_that_cannot_be_shown_is_a_gap(caplog: pytest.LogCaptureFixture) -> None:
    def show(position: str, event: Event) -> bytes:
        if event.key == "b":
            raise RuntimeError("broken")
        return f"{event.key} ".encode()

    async def story(store: Watched) -> None:
        live = EventHub(store, format=EventFormat(show, gap_block), buffer=100, most=1_000)
        async with live.stream(anything, allowed=always_allowed) as stream:
            start = await live.join(stream)
            await store.make("a", "b", "c")
            expected = ["a", "gap:unreadable", "c"]
            assert await got(stream, 3) == expected
            assert [page.text.decode().split() async for page in live.replay(stream, start)] == [expected]

    played(story)
    assert "broken" in caplog.text


def test_replayed_events_are_buffered_in_small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REPLAYED_BYTES", 20)

    async def story(store: Watched) -> None:
        live = live_on(store)
        async with live.stream(anything, allowed=always_allowed) as stream:
            start = (await store.run(store.journal.tail(None))).position
            keys = [f"key-{i:03}" for i in range(100)]  # eight bytes each, as they are shown
            await store.make(*keys)
            pages = [page.text.decode() async for page in live.replay(stream, start)]
            assert "".join(pages).split() == keys
            assert max(len(page) for page in pages) == 24

    played(story)


def test_a_stream_that_timed_out_does_not_delay_the_others_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even if it takes something now and then: many of them would take turns."""
    monkeypatch.setattr(module, "TAKEN_WITHIN_S", 0.01)

    async def story(store: Watched) -> None:
        live = live_on(store)
        async with (
            live.stream(anything, allowed=always_allowed) as reader,
            live.stream(anything, allowed=always_allowed) as sleeper,
        ):
            await live.join(reader)
            await live.join(sleeper)
            for n in range(3):
                await store.make(f"{n}a")
                assert await got(reader, 1) == [f"{n}a"]
                await store.make(f"{n}b")
                assert await got(reader, 1) == [f"{n}b"]  # by now the first one was waited for
                assert sleeper.is_behind
                assert not sleeper.is_waited_for
                sleeper.take(1_000_000)

    played(story)


class FailedOver(Watched):
    """A store whose server has lost what was before one position."""

    lost: str | None = None
    safe: str = ""

    async def tail(self, after: str | None, **options: Any) -> EventPage:
        if after is not None and after == self.lost:
            return EventPage(position=self.safe, gap=GapReason.FAILOVER, complete=False)
        return await super().tail(after, **options)


def test_after_a_failover_every_reader_gets_a_gap_and_then_all_that_is_new() -> None:
    async def story() -> None:
        store = FailedOver()
        await store.make("before")
        live = live_on(store)
        async with (
            live.stream(anything, allowed=always_allowed) as first,
            live.stream(anything, allowed=always_allowed) as other,
        ):
            store.safe = await live.join(first)
            await store.make("a")
            assert await got(first, 1) == ["a"]
            assert first.position is not None
            store.lost = first.position
            await store.make("new")
            assert await got(first, 3) == ["gap:failover", "a", "new"]
            pages = [page async for page in live.replay(other, store.lost)]
            assert "".join(page.text.decode() for page in pages).split() == ["gap:failover", "a", "new"]

    async def bounded() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await story()

    asyncio.run(bounded())
