"""Topics of the journal's events, as pages of the dashboard are notified of them."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

from tarry.services.live_events.stream import Stream
from tarry.services.live_events.topics import CLOCK, TOPICS, TopicHub
from tests.services.test_live import TIMEOUT_S, Watched, always_allowed, anything, live_on, played

EVERYTHING = (set(TOPICS), "")
"""Any queue may have changed."""


def described(number: int, topics: Collection[str], queues: Collection[str]) -> bytes:
    return f"{','.join(topics)}:{','.join(queues)} ".encode()


async def notified(stream: Stream) -> tuple[set[str], str]:
    """The next notification that is not of the clock alone: topics, and queues."""
    while True:
        assert await stream.wait(TIMEOUT_S)
        assert stream.ending is None
        names, queues = stream.take(1).decode().strip().split(":")
        if names != CLOCK:
            return set(names.split(",")) - {CLOCK}, queues


def test_a_stream_is_notified_of_everything_once_and_then_of_what_changes() -> None:
    async def story(store: Watched) -> None:
        hub = TopicHub(live_on(store), described, timedelta(milliseconds=5))
        async with hub.stream(anything, allowed=always_allowed) as stream:
            await hub.join(stream)
            assert await notified(stream) == EVERYTHING
            await store.make("a")
            assert await notified(stream) == ({"messages"}, "q")
            await store.run(store.queues.pause("q", reason="deploy"))
            assert await notified(stream) == ({"queues"}, "q")

    played(story)


def test_after_a_gap_in_the_journal_everything_may_have_changed() -> None:
    async def story(store: Watched) -> None:
        hub = TopicHub(live_on(store, most=20), described, timedelta(milliseconds=5))
        async with hub.stream(anything, allowed=always_allowed) as stream:
            await hub.join(stream)
            assert await notified(stream) == EVERYTHING
            await store.make(*(f"k{i}" for i in range(21)))
            assert await notified(stream) == EVERYTHING
            await store.make("after")
            assert await notified(stream) == ({"messages"}, "q")

    played(story)
