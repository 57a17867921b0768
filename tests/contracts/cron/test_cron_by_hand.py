"""Schedules in hands: pause, resume, run, skip, fill in, look ahead, explain; and clocks that are set. On every store."""

from __future__ import annotations

import copy
import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tarry import Queue
from tarry.api._sync.schedules import Schedules
from tarry.app import App
from tarry.core.cron.model import Reason, ScheduleChange, Verdict
from tarry.core.errors import UnknownSchedule
from tarry.services.cron._sync.api import Cron
from tests.kit.backends import Backend, new_name, where_the_messages_are
from tests.kit.calls import call_of, replace_call
from tests.kit.clocks import START, WatchedClock
from tests.kit.cron import scheduler, ticks_of, verdicts
from tests.kit.steps import HOUR, MINUTE, take

DAY = timedelta(days=1)


class SendsTwice:
    """A store whose connection breaks between a schedule change and its reply: a retry finds the schedule changed."""

    def __init__(self, store: Any, clock: WatchedClock) -> None:
        self._store = store
        self.cron = copy.copy(store.cron)
        apply = call_of(self, "cron.apply_changes")

        def twice(changes: Any, **options: Any) -> list[bool]:
            apply(changes, **options)
            clock.advance(MINUTE)
            return apply(changes, **options)

        replace_call(self, "cron.apply_changes", twice)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class TestByHand:
    def test_paused_it_does_not_fire_and_resumed_it_goes_on(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        cron.install_periodic(name, HOUR, queue=queue.name)
        state = cron.schedules.pause(name, reason="the printer is broken")
        assert (state.paused, state.paused_reason) == (True, "the printer is broken")
        clock.advance(2.5 * HOUR)
        scheduler(app).run_once()
        assert queue.try_poll() is None
        assert not cron.schedules.resume(name).paused
        clock.advance(HOUR)
        assert ticks_of(queue) == [START + 3 * HOUR]
        assert verdicts(cron.schedules.history(name)) == [
            (1, "skipped", "paused"),
            (2, "skipped", "paused"),
            (3, "planned", "on_time"),
        ]

    def test_what_fired_before_the_pause_is_still_delivered(
        self, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        cron.install_periodic(name, HOUR, queue=queue.name)
        clock.advance(HOUR)
        cron.schedules.pause(name)
        assert ticks_of(queue) == [START + HOUR]

    def test_a_change_of_a_paused_schedule_leaves_it_paused(
        self, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        cron.install_periodic(name, HOUR, queue=queue.name)
        cron.schedules.pause(name)
        cron.install_periodic(name, 2 * HOUR, queue=queue.name)
        clock.advance(DAY)
        assert queue.try_poll() is None

    def test_a_change_that_comes_after_the_end_makes_nothing_again(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        """One process read it, another removed it, and now the first writes."""
        cron.install_periodic(name, HOUR, queue=queue.name)
        (seen,) = [state for state in app.store.run(app.store.cron.schedules()) if state.name == name]
        changed = dataclasses.replace(seen, paused_reason="late")
        late = ScheduleChange(name=name, expected=seen.revision, after=changed, decided_at=clock.pinned())
        cron.schedules.delete(name)
        assert app.store.run(app.store.cron.apply_changes([late])) == [False]
        assert name not in [state.name for state in app.store.run(app.store.cron.schedules())]

    def test_triggered_it_runs_once_more_and_now(
        self, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        cron.install_periodic(name, HOUR, queue=queue.name)
        clock.advance(MINUTE)
        first, second = cron.schedules.trigger(name), cron.schedules.trigger(name)
        assert (first, second - first) == (START + MINUTE, timedelta(microseconds=1))
        assert ticks_of(queue) == [first, second]
        clock.set(START + HOUR)
        assert ticks_of(queue) == [START + HOUR]

    @pytest.mark.parametrize("verb", ["trigger", "skip"])
    def test_a_change_whose_reply_was_lost_is_not_applied_again(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock, verb: str
    ) -> None:
        cron.install_periodic(name, HOUR, queue=queue.name)
        lossy: Any = SendsTwice(app.store, clock)
        tick = getattr(Schedules(lossy), verb)(name)
        by_hand = [record for record in cron.schedules.history(name) if record.reason is Reason.BY_HAND]
        assert [record.tick for record in by_hand] == [tick]

    def test_a_repeated_backfill_or_delete_reports_its_first_result_after_a_lost_reply(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        cron.install_periodic(name, HOUR, queue=queue.name)
        lossy: Any = SendsTwice(app.store, clock)
        schedules = Schedules(lossy)
        expected = [START - 2 * HOUR, START - HOUR]
        assert schedules.backfill(name, expected[0], START) == expected
        assert ticks_of(queue) == expected
        assert schedules.delete(name)
        assert not schedules.delete(name)

    def test_every_other_repeated_change_is_applied_once(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        lossy: Any = SendsTwice(app.store, clock)
        schedules = Schedules(lossy)
        spec = cron.install_periodic(name, HOUR, queue=queue.name).state.spec  # pyright: ignore[reportOptionalMemberAccess]
        changed = dataclasses.replace(spec, priority=3)
        assert schedules.put(changed).generation == 2
        assert schedules.pause(name, reason="why").paused
        assert not schedules.resume(name).paused
        other = new_name()
        schedules.apply([spec, dataclasses.replace(spec, name=other)])
        assert cron.schedules.get(name).generation == 3
        assert cron.schedules.get(other).generation == 1
        clock.set(START + HOUR)
        assert ticks_of(queue) == [START + HOUR] * 2

    def test_the_next_tick_can_be_skipped(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        cron.install_periodic(name, HOUR, queue=queue.name)
        assert cron.schedules.skip(name) == START + HOUR
        assert cron.schedules.skip(name) == START + 2 * HOUR
        ticks: list[datetime] = []
        for _ in range(4):
            clock.advance(HOUR)
            scheduler(app).run_once()
            ticks += ticks_of(queue)
        assert ticks == [START + 3 * HOUR, START + 4 * HOUR]
        assert "skipped" in cron.schedules.explain(name, START + HOUR)

    def test_what_is_missing_is_counted_first_and_then_filled_in(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        cron.install_periodic(name, HOUR, queue=queue.name)
        clock.advance(5.5 * HOUR)
        scheduler(app).run_once()
        ticks_of(queue)
        span = (START - 2 * HOUR, START + 9 * HOUR)
        expected = [START + n * HOUR for n in (-2, -1, 0, 2, 3, 4)]
        assert cron.schedules.missing(name, *span) == expected
        assert queue.try_poll() is None
        assert cron.schedules.backfill(name, *span) == expected
        assert ticks_of(queue) == expected
        assert cron.schedules.backfill(name, *span) == []

    def test_the_preview_is_what_the_scheduler_then_does(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        clock.set(datetime(2024, 3, 30, 20, tzinfo=UTC))
        cron.install_cron(name, "30 2 * * *", zone="Europe/Berlin", queue=queue.name, jitter_for=MINUTE)
        ahead = cron.schedules.preview(name, 4)
        assert [fire.verdict for fire in ahead] == [Verdict.PLANNED, None, None, None]
        for fire in ahead:
            clock.set(fire.due_at)
            scheduler(app).run_once()
            (delivery,) = queue.try_poll_many(9)
            assert (delivery.headers["tarry-tick"], delivery.due_at) == (fire.tick.isoformat(), fire.due_at)
            delivery.ack()

    def test_every_tick_can_be_explained(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        cron.install_periodic(name, HOUR, queue=queue.name)
        explain = cron.schedules.explain
        assert "planned at" in explain(name, START + HOUR)
        assert "still live" in explain(name, START + HOUR)
        assert "lies ahead" in explain(name, START + 5 * HOUR)
        assert "not a tick of this schedule" in explain(name, START + MINUTE)
        assert "installed later" in explain(name, START - HOUR)
        clock.advance(4 * HOUR)
        assert "nothing was decided yet" in explain(name, START + 3 * HOUR)

    def test_an_unknown_schedule_is_reported(self, cron: Cron, name: str) -> None:
        for verb in ("get", "pause", "resume", "trigger", "skip", "preview"):
            with pytest.raises(UnknownSchedule):
                getattr(cron.schedules, verb)(name)


class TestClocks:
    def test_a_clock_that_is_set_back_doubles_nothing_and_skips_nothing(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        cron.install_periodic(name, HOUR, queue=queue.name)
        ticks: list[datetime] = []
        for step in (1, 1, 1, -2, 1, 1, 1, 1, -1, 1, 1):
            clock.advance(step * HOUR)
            scheduler(app).run_once()
            ticks += ticks_of(queue)
        assert sorted(ticks) == [START + n * HOUR for n in range(1, 7)]
        assert len(set(ticks)) == len(ticks)

    def test_a_tick_that_comes_between_the_step_back_and_the_next_look_is_made_too(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        """By a clock that was hours ahead it had been skipped; within the grace it is looked at again."""
        cron.install_periodic(name, HOUR, queue=queue.name)
        clock.set(START + 5.5 * HOUR)
        scheduler(app).run_once()
        assert ticks_of(queue) == [START + HOUR, START + 5 * HOUR]
        clock.set(START + 2 * HOUR - MINUTE / 4)
        clock.set(START + 2 * HOUR + MINUTE / 4)
        for _ in range(2):
            scheduler(app).run_once()
        assert ticks_of(queue) == [START + 2 * HOUR]
        clock.set(START + 3 * HOUR)
        scheduler(app).run_once()
        assert ticks_of(queue) == [START + 3 * HOUR]

    def test_a_clock_that_was_a_year_ahead_for_a_moment_costs_no_tick(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        cron.install_periodic(name, HOUR, queue=queue.name)
        clock.advance(365 * DAY)
        scheduler(app).run_once()
        clock.advance(-365 * DAY)
        ticks: list[datetime] = []
        for _ in range(6):
            clock.advance(HOUR)
            scheduler(app).run_once()
            ticks += ticks_of(queue)
        assert ticks == [START + n * HOUR for n in range(1, 7)]


class TestManyAtOnce:
    def test_all_or_none_are_applied(self, app: App, cron: Cron, queue: Queue[Any], name: str) -> None:
        cron.install_periodic(name, HOUR, queue=queue.name, payload=1)
        spec = cron.schedules.get(name).spec
        more = [dataclasses.replace(spec, name=f"{name}/{n}") for n in range(3)]
        cron.schedules.apply(more, remove=[name])
        assert [state.name for state in cron.schedules.list()] == [change.name for change in more]

    @where_the_messages_are
    def test_what_comes_due_is_counted_by_slices(
        self, backend: Backend, app: App, cron: Cron, queue: Queue[Any], clock: WatchedClock
    ) -> None:
        for minutes in (5, 10, 70):
            queue.offer(None, 1, after=minutes * MINUTE)
        queue.offer("now", 1)
        take(queue).nack(after=30 * MINUTE)
        counts = app.store.run(app.store.cron.due_counts(START, START + 2 * HOUR, HOUR))
        assert [tuple(part)[1:] for part in counts if part.queue == queue.name] == [(START, 3, 1), (START + HOUR, 1, 0)]
