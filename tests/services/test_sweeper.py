"""The sweeper as a service: one works, the others wait; what it does in a round, and when the next round is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import tarry
from tarry.app import AsyncApp
from tarry.core.errors import InvalidState, StoreUnavailable
from tarry.core.maintenance.sweeping import Partitions, VacuumProblem
from tarry.core.messages.model import Draft
from tarry.core.security.idempotency import IdempotencyKey, StoredResponse
from tarry.core.settings import SweeperSettings
from tarry.services.sweeper import Sweeper, SweepReport
from tarry.testing import MutableClock, async_memory_app
from tests.kit.calls import call_of, replace_call
from tests.kit.steps import MINUTE, SECOND, TIMEOUT_S


@pytest.fixture
def app(pinned_clock: MutableClock) -> AsyncApp:
    return async_memory_app(pinned_clock)


async def die_with_consumers(app: AsyncApp, clock: MutableClock, *, max_attempts: int) -> None:
    queue = app.queue("orders")
    for key in "abc":
        await queue.offer(key, 0, max_attempts=max_attempts)
    assert len(await queue.try_poll_many(3)) == 3
    clock.advance(MINUTE)


async def test_a_round_records_expiries_and_buries_what_is_exhausted(app: AsyncApp, pinned_clock: MutableClock) -> None:
    await die_with_consumers(app, pinned_clock, max_attempts=1)
    report = await app.sweeper().run_once()
    assert (report.leading, report.queues, report.expired, report.buried) == (True, 1, 3, 3)
    assert report.did_something
    assert not (await app.sweeper().run_once()).leading, "the first one still leads"


async def test_one_of_two_works_and_the_other_follows_when_it_is_gone(
    app: AsyncApp, pinned_clock: MutableClock
) -> None:
    first, second = app.sweeper(), app.sweeper()
    assert (await first.run_once()).leading
    await die_with_consumers(app, pinned_clock, max_attempts=2)
    report = await second.run_once()
    assert (report.leading, report.fence, report.expired) == (True, 2, 3)


async def test_a_redrive_job_that_is_blocked_does_not_keep_the_others_waiting(
    app: AsyncApp, pinned_clock: MutableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[int] = []
    for name in ("blocked", "free"):
        queue = app.queue(name)
        await queue.offer("a", 1, max_attempts=1)
        (delivery,) = await queue.try_poll_many(1)
        await delivery.nack("no")
        jobs.append((await queue.dead_letters.start_redrive()).id)
        pinned_clock.advance(SECOND)
    advance = call_of(app.store, "dead_letters.advance_redrive")

    async def blocked(job: int | None = None, **options: Any) -> Any:
        if job in (None, jobs[0]):  # the one that waits longest
            raise InvalidState("other transactions held what this needs for too long")
        return await advance(job, **options)

    replace_call(app.store, "dead_letters.advance_redrive", blocked)
    sweeper = Sweeper(app.store, random=lambda: 0.5)
    report = await sweeper.run_once()
    assert (report.redriven, report.is_blocked) == (1, True)
    assert await app.queue("free").contains("a")
    rest_s = await sweeper._round()  # pyright: ignore[reportPrivateUsage]
    assert rest_s == SweeperSettings().every.total_seconds(), "a job that waits is no reason for rounds without rest"


async def test_paused_queues_are_left_alone(app: AsyncApp, pinned_clock: MutableClock) -> None:
    await die_with_consumers(app, pinned_clock, max_attempts=1)
    await app.queues.pause("orders")
    report = await app.sweeper().run_once()
    assert (report.queues, report.buried) == (0, 0)


async def test_a_round_carries_redrive_jobs_on_as_far_as_their_rate_allows(
    app: AsyncApp, pinned_clock: MutableClock
) -> None:
    await die_with_consumers(app, pinned_clock, max_attempts=1)
    sweeper = app.sweeper()
    await sweeper.run_once()
    redrive = await app.queue("orders").dead_letters.start_redrive(rate=1)
    assert [(await sweeper.run_once()).redriven for _ in range(2)] == [1, 0]
    pinned_clock.advance(SECOND)
    assert (await sweeper.run_once()).redriven == 1
    await redrive.pause()
    pinned_clock.advance(SECOND)
    assert (await sweeper.run_once()).redriven == 0


async def test_maintenance_runs_less_often_and_its_failures_stop_nothing(
    app: AsyncApp, pinned_clock: MutableClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    timer = [0.0]
    sweeper = Sweeper(app.store, SweeperSettings(maintain_every=MINUTE), timer=lambda: timer[0])

    async def strained(**_: Any) -> list[VacuumProblem]:
        return [VacuumProblem("oldest snapshot", "session 7 has been open for an hour", "end it")]

    async def refusing(days: int, **_: Any) -> Partitions:
        raise InvalidState("the journal is being read")

    replace_call(app.store, "maintenance.vacuum_problems", strained)
    replace_call(app.store, "maintenance.make_partitions", refusing)
    reports = [await sweeper.run_once()]
    timer[0] += 59
    reports.append(await sweeper.run_once())
    timer[0] += 1
    reports.append(await sweeper.run_once())
    assert [len(report.vacuum_problems) for report in reports] == [1, 0, 1]
    assert [report.partitions for report in reports] == [None] * 3
    assert [record.levelname for record in caplog.records].count("WARNING") == 1, "logged once, not every minute"


async def test_partitions_that_cannot_be_made_do_not_keep_expired_leases_waiting(
    app: AsyncApp, pinned_clock: MutableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def too_slow(*args: Any, **options: Any) -> Partitions:
        raise StoreUnavailable("the database ended a statement")

    replace_call(app.store, "maintenance.make_partitions", too_slow)
    await die_with_consumers(app, pinned_clock, max_attempts=2)
    assert (await app.sweeper().run_once()).expired == 3


async def test_a_job_that_is_blocked_by_a_transaction_waits_for_the_next_round(
    app: AsyncApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def blocked(job: int | None = None, **_: Any) -> None:
        raise InvalidState("other transactions held what this needs for too long")

    queue = app.queue("orders")
    await queue.offer("a", 0)
    await queue.leases.bury([delivery.lease_id for delivery in await queue.try_poll_many(1)], "x")
    await queue.dead_letters.start_redrive()
    replace_call(app.store, "dead_letters.advance_redrive", blocked)
    report = await app.sweeper().run_once()
    assert (report.leading, report.has_jobs, report.is_blocked, report.redriven) == (True, True, True, 0)


async def test_a_long_queue_is_walked_over_several_rounds(app: AsyncApp, pinned_clock: MutableClock) -> None:
    queue = app.queue("orders")
    await queue.offer_many([tarry.Message(key=f"k{i}", payload=0) for i in range(10)])
    await queue.try_poll_many(10)
    pinned_clock.advance(MINUTE)
    sweeper = app.sweeper(SweeperSettings(batch=2, most_steps=2))
    assert [(await sweeper.run_once()).expired for _ in range(4)] == [4, 4, 2, 0]


async def test_a_quiet_queue_is_looked_at_less_and_less_often_until_something_ran_out(
    app: AsyncApp, pinned_clock: MutableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[float] = []
    timer = [0.0]
    sweep = call_of(app.store, "maintenance.sweep")

    async def counted(*args: Any, **kwargs: Any) -> Any:
        looked.append(timer[0])
        return await sweep(*args, **kwargs)

    replace_call(app.store, "maintenance.sweep", counted)
    await app.queue("orders").offer("a", 0, after=timedelta(days=1))
    sweeper = Sweeper(app.store, timer=lambda: timer[0], random=lambda: 0.5)

    async def rounds_until(seconds: float) -> None:
        while timer[0] < seconds:
            assert await sweeper._round() == 10.0
            timer[0] += 10.0

    await rounds_until(300)
    assert looked == [0, 10, 30, 70, 130, 190, 250]
    await die_with_consumers(app, pinned_clock, max_attempts=5)
    looked.clear()
    assert (await sweeper.run_once()).expired == 3, "run_once is always a round"
    timer[0] += 10
    await rounds_until(350)
    assert looked == [300, 310, 330], "where something ran out, more may"


def eventually(reports: list[SweepReport], condition: Callable[[SweepReport], bool]) -> tuple[asyncio.Event, Any]:
    happened = asyncio.Event()

    def note(report: SweepReport) -> None:
        reports.append(report)
        if condition(report):
            happened.set()

    return happened, note


async def test_it_runs_beside_a_program_and_hands_its_office_over_when_the_block_ends(database: str) -> None:
    async with tarry.connect_async(database) as on_postgres:
        settings = SweeperSettings(every=timedelta(milliseconds=20))
        reports: list[SweepReport] = []
        happened, note = eventually(reports, lambda report: report.expired > 0)
        queue = on_postgres.queue("orders")
        async with on_postgres.sweeper(settings, on_report=note):
            await queue.offer("a", 1, lease_for=SECOND)
            assert await queue.try_poll() is not None
            await asyncio.wait_for(happened.wait(), TIMEOUT_S)
        assert await on_postgres.store.run(on_postgres.store.maintenance.leader("sweeper")) is None
        events = await on_postgres.store.run(on_postgres.store.journal.timeline("orders", "a"))
        assert [event.kind.value for event in events] == ["offered", "leased", "expired"]
        partitions = next(report.partitions for report in reports if report.partitions is not None)
        assert (partitions.ahead, partitions.required, partitions.overflowing) == (8, 8, False)
        assert reports[0].vacuum_problems == []


async def test_it_survives_a_database_that_is_away(app: AsyncApp, monkeypatch: pytest.MonkeyPatch) -> None:
    reports: list[SweepReport] = []
    happened, note = eventually(reports, lambda report: report.leading)
    real, failures = call_of(app.store, "queues.infos"), 0

    async def away(*, conn: Any = None) -> Any:
        nonlocal failures
        failures += 1
        if failures < 3:
            raise StoreUnavailable("the database cannot be reached")
        return await real(conn=conn)

    replace_call(app.store, "queues.infos", away)
    async with app.sweeper(SweeperSettings(every=timedelta(milliseconds=1)), on_report=note):
        await asyncio.wait_for(happened.wait(), TIMEOUT_S)
    assert failures >= 3


async def test_a_redrive_at_a_rate_is_carried_on_in_time(database: str) -> None:
    """Not only once per round: ten seconds would be a long pause between two messages."""
    async with tarry.connect_async(database) as on_postgres:
        queue = on_postgres.queue("orders")
        await queue.offer_many([tarry.Message(key=f"k{i}", payload=0) for i in range(6)])
        await queue.leases.bury([delivery.lease_id for delivery in await queue.try_poll_many(6)], "x")
        redrive = await queue.dead_letters.start_redrive(rate=20)
        reports: list[SweepReport] = []
        moved = 0

        def all_moved(report: SweepReport) -> bool:
            nonlocal moved
            moved += report.redriven
            return moved == 6

        happened, note = eventually(reports, all_moved)
        async with on_postgres.sweeper(SweeperSettings(every=timedelta(minutes=1)), on_report=note):
            await asyncio.wait_for(happened.wait(), TIMEOUT_S)
        assert len([report for report in reports if report.redriven]) > 1
        assert (await redrive.refresh()).redriven == 6


@pytest.mark.parametrize("wrong", [{"every": timedelta(0)}, {"batch": 0}, {"lead_for": -SECOND}])
def test_settings_are_valid_at_birth(wrong: Any) -> None:
    with pytest.raises(tarry.TarryError):
        SweeperSettings(**wrong)


async def test_responses_are_forgotten_after_a_day_in_steps(app: AsyncApp, pinned_clock: MutableClock) -> None:
    for number in range(5):
        request = IdempotencyKey("", f"k{number}", b"x" * 32)
        await app.store.run(
            app.store.security.offer_idempotent(
                "orders", Draft(f"m{number}", b"1"), request, lambda _: StoredResponse(201, b"")
            )
        )
    sweeper = app.sweeper(SweeperSettings(batch=2))
    assert (await sweeper.run_once()).forgotten == 0
    pinned_clock.advance(25 * 60 * MINUTE)
    assert (await app.sweeper(SweeperSettings(batch=2)).run_once()).forgotten == 5
