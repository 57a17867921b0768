"""The candidate for an office: when it asks, and what it believes."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tarry.core.leading import Leadership
from tarry.services.leader import Leader
from tarry.storage.memory import AsyncMemoryStore, MemoryStore
from tarry.testing import MutableClock
from tests.kit.steps import MINUTE, SECOND


class Asked(AsyncMemoryStore):
    """Counts how often it is asked."""

    asked = 0

    async def lead(self, name: str, holder: str, lead_for: timedelta, *, conn: object = None) -> Leadership | None:
        self.asked += 1
        return await super().lead(name, holder, lead_for, conn=conn)

    async def lead_on(self, held: Leadership, lead_for: timedelta, *, conn: object = None) -> Leadership | None:
        self.asked += 1
        return await super().lead_on(held, lead_for, conn=conn)


class Stage:
    def __init__(self, clock: MutableClock) -> None:
        self.clock = clock
        self.store = Asked(MemoryStore(clock=clock))
        self.monotonic = 0.0

    def candidate(self, holder: str) -> Leader:
        return Leader(self.store, "office", holder=holder, lead_for=MINUTE, timer=lambda: self.monotonic)

    def pass_time(self, span: timedelta) -> None:
        self.clock.advance(span)
        self.monotonic += span.total_seconds()


@pytest.fixture
def stage(pinned_clock: MutableClock) -> Stage:
    return Stage(pinned_clock)


async def test_it_asks_again_only_after_a_third_of_its_lease(stage: Stage) -> None:
    leader = stage.candidate("alice")
    for _ in range(5):
        assert await leader.lead()
    assert stage.store.asked == 1
    stage.pass_time(20 * SECOND)
    held = await leader.lead()
    assert stage.store.asked == 2
    assert held is not None
    assert (held.fence, held.lease_until) == (1, stage.clock.pinned() + MINUTE)


async def test_two_candidates_of_one_name_are_two(stage: Stage) -> None:
    one, other = stage.candidate("alice"), stage.candidate("alice")
    assert await one.lead()
    assert await other.lead() is None


async def test_a_lease_that_ran_out_is_noticed_and_the_office_asked_for_anew(stage: Stage) -> None:
    one, other = stage.candidate("alice"), stage.candidate("bob")
    assert await one.lead()
    stage.pass_time(MINUTE)
    assert await other.lead()
    assert await one.lead() is None
    stage.pass_time(MINUTE)
    again = await one.lead()
    assert again is not None
    assert again.fence == 3


async def test_whoever_resigns_is_followed_at_once(stage: Stage) -> None:
    one, other = stage.candidate("alice"), stage.candidate("bob")
    await one.lead()
    await one.resign()
    assert one.held is None
    assert await other.lead()
    await one.resign()
    assert await other.lead()
