"""The candidate for a leadership: when it acquires and renews, and what it assumes."""

from __future__ import annotations

from datetime import timedelta
from typing import TypeVar

import pytest

from tarry.core.operation import Operation
from tarry.services.leader import Leader
from tarry.storage.memory import AsyncMemoryStore, MemoryStore
from tarry.testing import MutableClock
from tests.kit.steps import MINUTE, SECOND

R = TypeVar("R")


class CountingStore(AsyncMemoryStore):
    """Counts how often leadership is requested."""

    acquisitions = 0

    async def run(self, operation: Operation[R], conn: object = None) -> R:
        self.acquisitions += 1
        return await super().run(operation, conn)


class Stage:
    def __init__(self, clock: MutableClock) -> None:
        self.clock = clock
        self.store = CountingStore(MemoryStore(clock=clock))
        self.monotonic = 0.0

    def candidate(self, holder: str) -> Leader:
        return Leader(self.store, "office", holder=holder, lead_for=MINUTE, timer=lambda: self.monotonic)

    def pass_time(self, span: timedelta) -> None:
        self.clock.advance(span)
        self.monotonic += span.total_seconds()


@pytest.fixture
def stage(pinned_clock: MutableClock) -> Stage:
    return Stage(pinned_clock)


async def test_it_renews_only_after_a_third_of_its_lease(stage: Stage) -> None:
    leader = stage.candidate("alice")
    for _ in range(5):
        assert await leader.leadership()
    assert stage.store.acquisitions == 1
    stage.pass_time(20 * SECOND)
    held = await leader.leadership()
    assert stage.store.acquisitions == 2
    assert held is not None
    assert (held.fence, held.lease_until) == (1, stage.clock.pinned() + MINUTE)


async def test_two_candidates_of_one_name_are_two(stage: Stage) -> None:
    first, other = stage.candidate("alice"), stage.candidate("alice")
    assert await first.leadership()
    assert await other.leadership() is None


async def test_an_expired_leadership_is_noticed_and_acquired_anew(stage: Stage) -> None:
    first, other = stage.candidate("alice"), stage.candidate("bob")
    assert await first.leadership()
    stage.pass_time(MINUTE)
    assert await other.leadership()
    assert await first.leadership() is None
    stage.pass_time(MINUTE)
    again = await first.leadership()
    assert again is not None
    assert again.fence == 3


async def test_after_a_resignation_another_candidate_leads_at_once(stage: Stage) -> None:
    first, other = stage.candidate("alice"), stage.candidate("bob")
    await first.leadership()
    await first.resign()
    assert first.held is None
    assert await other.leadership()
    await first.resign()
    assert await other.leadership()
