"""Values that no check refuses and no store has: never an error of the driver's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from uuid import uuid4

import pytest

from tarry import Message, Queue, Settled
from tarry.app import App
from tarry.core.errors import InvalidInput
from tarry.core.messages.model import LeaseId
from tests.kit.clocks import START
from tests.kit.steps import seen, take


@contextmanager
def fine_or_refused(word: str) -> Iterator[None]:
    """Both answers are right, as long as a refusal names what is wrong. An error of the driver's is not."""
    try:
        yield
    except InvalidInput as error:
        if word not in str(error):
            raise


def test_a_key_that_cannot_be_is_not_held(queue: Queue[Any]) -> None:
    """A token comes from somewhere else, and so may its key: refused, or gone, but nothing breaks."""
    for key in ("", "k" * 201, "a\x00", "\ud800"):
        for settle in (queue.leases.ack, queue.leases.release, queue.leases.touch, queue.leases.bury):
            with fine_or_refused("key"):
                assert settle([LeaseId(key, uuid4())]) == [Settled.GONE]


@pytest.mark.parametrize("limit", [-1, 2**31, 10**30])
def test_a_limit_that_cannot_be_is_refused_or_as_good_as_none(app: App, queue: Queue[Any], limit: int) -> None:
    queue.offer("a", 1)
    looks: list[Any] = [
        lambda: queue.dead_letters.list(limit=limit),
        lambda: queue.dead_letters.redrive(limit=limit),
        lambda: app.queues.counts(queue.name, limit=limit),
        lambda: app.store.run(app.store.messages.list(queue.name, limit=limit)),
        lambda: app.store.run(app.store.journal.timeline(queue.name, "a", limit=limit)),
    ]
    for look in looks:
        with fine_or_refused("limit"):
            look()


@pytest.mark.parametrize("version", [2**63, -(10**30)])
def test_a_version_that_cannot_be_drops_nothing(queue: Queue[Any], version: int) -> None:
    queue.offer("a", 1)
    with fine_or_refused("version"):
        assert not queue.drop("a", version=version)
    assert queue.contains("a")


@pytest.mark.parametrize("version", [2**63, -1])
def test_a_version_that_cannot_be_redrives_nothing(queue: Queue[Any], version: int) -> None:
    queue.offer("a", 1)
    take(queue).bury()
    with fine_or_refused("version"):
        assert queue.dead_letters.redrive([version]) == 0
    assert len(queue.dead_letters.list()) == 1


def test_subclasses_of_text_and_numbers_are_stored_as_such(queue: Queue[Any]) -> None:
    class Text(str):
        __slots__ = ()

    class Number(int):
        pass

    queue.offer(Text("a"), 1, type=Text("text"), priority=Number(3))
    queue.offer_many([Message(key=Text("b"), payload=1, type=Text("text"), max_attempts=Number(2)), Message(payload=1)])
    assert [delivery.key for delivery in queue.try_poll_many(2, type=Text("text"))] == ["a", "b"]
    assert seen(queue, Text("a")).priority == 3
    assert queue.drop(Text("a"))


def test_the_edges_of_the_calendar_are_times_like_any_other(queue: Queue[Any]) -> None:
    for edge in (datetime.min.replace(tzinfo=START.tzinfo), datetime.max.replace(tzinfo=START.tzinfo)):
        queue.offer("edge", 1, at=edge, priority=9)
        assert seen(queue, "edge").due_at == edge
        queue.try_poll()
        queue.drop("edge")


def test_a_very_large_count_is_a_very_large_count(queue: Queue[Any]) -> None:
    for n in (2**31, 10**30):
        assert queue.try_poll_many(n) == []


def test_any_text_is_a_reason_and_made_fit_to_be_stored(app: App, queue: Queue[Any]) -> None:
    app.queues.create(queue.name)
    for reason, kept in (("a\x00b", "a␀b"), ("half \ud83d", "half ?"), ("x" * 9_000, "x" * 7_999)):
        stored = app.queues.pause(queue.name, reason=reason).paused_reason
        app.queues.resume(queue.name)
        assert stored is not None
        assert stored.startswith(kept)
        assert len(stored) <= 8_000
