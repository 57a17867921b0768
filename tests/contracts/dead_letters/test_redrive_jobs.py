"""Redrives as jobs: by filter, at a rate, canaries first; paused, resumed, cancelled; continued by any process."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from tarry import Message, Queue
from tarry.api._sync.redrives import Redrive
from tarry.app import App
from tarry.core.dead_letters.redrive import RedriveOptions, RedrivePhase, RedriveState
from tarry.core.errors import InvalidInput, InvalidState, UnknownRedrive
from tests.kit.backends import where_the_messages_are
from tests.kit.clocks import START, WatchedClock
from tests.kit.steps import MINUTE, SECOND, all_at_once, keys, numbers, seen, take


def dead(queue: Queue[Any], n: int, error: str = "x") -> list[str]:
    names = [f"{error}-{i:04}" for i in range(n)]
    queue.offer_many([Message(key=key, payload=0, at=START, priority=9) for key in names])
    queue.leases.bury([delivery.lease_id for delivery in queue.try_poll_many(n)], error)
    return names


def finish(redrive: Redrive, most: int = 50) -> None:
    for _ in range(most):
        if redrive.advance().ended:
            return
    raise AssertionError(f"not ended: {redrive.job}")


class TestToTheEnd:
    def test_every_letter_lives_again_from_the_first_attempt_and_knows_where_it_came_from(
        self, app: App, queue: Queue[Any]
    ) -> None:
        dead(queue, 3)
        old = {letter.key: letter.version for letter in queue.dead_letters.list()}
        redrive = queue.dead_letters.start_redrive(consumer="alice")
        assert (redrive.job.state, redrive.job.total.n, redrive.job.share) == (RedriveState.RUNNING, 3, 0.0)
        finish(redrive)
        job = redrive.job
        assert (job.state, job.redriven, job.skipped, job.share) == (RedriveState.DONE, 3, 0, 1.0)
        assert (job.started_by, job.queue, job.ended_at) == ("alice", queue.name, START)
        assert numbers(app, queue) == (0, 3, 0, 0)
        for key, version in old.items():
            stored = seen(queue, key)
            assert (stored.attempt, stored.origin, stored.last_error) == (0, version, None)
            event = app.store.run(app.store.journal.timeline(queue.name, key))[-1]
            assert (event.kind.value, event.detail) == ("redriven", {"from_version": version, "job": job.id})

    def test_they_are_delivered_in_the_order_in_which_they_died(self, queue: Queue[Any], clock: WatchedClock) -> None:
        for key in "cab":
            queue.offer(key, 0)
            take(queue).bury("x")
            clock.advance(SECOND)
        finish(queue.dead_letters.start_redrive())
        assert keys(queue.try_poll_many(3)) == ["c", "a", "b"]

    def test_only_what_the_filter_fits(self, queue: Queue[Any]) -> None:
        dead(queue, 2, "x")
        dead(queue, 2, "y")
        (group,) = [group for group in queue.dead_letters.groups() if group.pattern == "y"]
        redrive = queue.dead_letters.start_redrive(fingerprint=group.fingerprint)
        finish(redrive)
        assert redrive.job.redriven == 2
        assert keys(queue.dead_letters.list()) == ["x-0001", "x-0000"]
        versions = [letter.version for letter in queue.dead_letters.list()]
        other = queue.dead_letters.start_redrive(versions=versions[:1], key_prefix="x", died_to=START + SECOND)
        finish(other)
        assert keys(queue.dead_letters.list()) == ["x-0000"]

    def test_many_take_many_steps_and_none_is_lost_or_doubled(self, app: App, queue: Queue[Any]) -> None:
        names = dead(queue, 1_201)
        redrive = queue.dead_letters.start_redrive()
        steps = 0
        while not redrive.job.ended:
            redrive.advance()
            steps += 1
        assert steps in (3, 4)
        assert (redrive.job.redriven, numbers(app, queue)) == (1_201, (0, 1_201, 0, 0))
        assert sorted(keys(queue.try_poll_many(2_000))) == names

    def test_where_the_key_is_live_the_letter_is_skipped_and_stays_dead(self, queue: Queue[Any]) -> None:
        dead(queue, 2)
        queue.offer("x-0000", "new")
        redrive = queue.dead_letters.start_redrive()
        finish(redrive)
        assert (redrive.job.redriven, redrive.job.skipped) == (1, 1)
        assert keys(queue.dead_letters.list()) == ["x-0000"]
        assert seen(queue, "x-0000").payload == "new"

    def test_of_two_letters_of_one_key_the_older_lives(self, queue: Queue[Any], clock: WatchedClock) -> None:
        for payload in ("older", "newer"):
            queue.offer("a", payload)
            take(queue).bury("x")
            clock.advance(SECOND)
        redrive = queue.dead_letters.start_redrive()
        finish(redrive)
        assert (redrive.job.redriven, redrive.job.skipped) == (1, 1)
        assert seen(queue, "a").payload == "older"

    def test_what_dies_again_is_not_redriven_by_the_same_job(self, queue: Queue[Any]) -> None:
        dead(queue, 3)
        redrive = queue.dead_letters.start_redrive(canary=1)
        redrive.advance()
        take(queue).ack()
        redrive.advance()
        redrive.advance()
        take(queue).bury("x")
        finish(redrive)
        assert redrive.job.redriven == 3
        assert len(queue.dead_letters.list()) == 1

    @pytest.mark.usefixtures("queue_exists")
    def test_nothing_to_do_is_done_at_once(self, queue: Queue[Any]) -> None:
        redrive = queue.dead_letters.start_redrive(canary=5)
        assert redrive.advance().state is RedriveState.DONE
        assert redrive.job.redriven == 0

    def test_it_begins_after_a_while(self, queue: Queue[Any], clock: WatchedClock) -> None:
        dead(queue, 2)
        redrive = queue.dead_letters.start_redrive(after=MINUTE)
        assert (redrive.job.next_at, redrive.advance().redriven) == (START + MINUTE, 0)
        clock.advance(MINUTE)
        finish(redrive)
        assert (redrive.job.redriven, redrive.job.created_at) == (2, START)


class TestRate:
    def test_no_more_than_the_rate_allows(self, queue: Queue[Any], clock: WatchedClock) -> None:
        dead(queue, 30)
        redrive = queue.dead_letters.start_redrive(rate=10)
        moved: list[int] = []
        for _ in range(10):
            redrive.advance()
            redrive.advance()
            moved.append(redrive.job.redriven)
            clock.advance(SECOND / 5)
        assert moved == [2, 4, 6, 8, 10, 12, 14, 16, 18, 20]
        assert redrive.job.next_at == clock.pinned()

    def test_a_slow_rate_is_one_and_then_a_pause(self, queue: Queue[Any], clock: WatchedClock) -> None:
        dead(queue, 2)
        redrive = queue.dead_letters.start_redrive(rate=0.1)
        assert redrive.advance().redriven == 1
        assert redrive.job.next_at == START + 10 * SECOND
        clock.advance(9 * SECOND)
        assert redrive.advance().redriven == 1
        clock.advance(SECOND)
        assert redrive.advance().redriven == 2


class TestCanary:
    def test_the_rest_waits_until_the_canaries_are_done(self, queue: Queue[Any], clock: WatchedClock) -> None:
        dead(queue, 5)
        redrive = queue.dead_letters.start_redrive(canary=2)
        assert (redrive.job.phase, redrive.advance().phase) == (RedrivePhase.CANARY, RedrivePhase.VERDICT)
        assert redrive.job.redriven == 2
        first, other = queue.try_poll_many(5)
        first.ack()
        assert redrive.advance().phase is RedrivePhase.VERDICT
        other.ack()
        assert redrive.advance().phase is RedrivePhase.VERDICT, "it looks again only after a while"
        clock.advance(SECOND)
        assert redrive.advance().phase is RedrivePhase.REST
        finish(redrive)
        assert (redrive.job.redriven, queue.dead_letters.list()) == (5, [])

    def test_a_canary_that_dies_again_pauses_the_job_with_a_reason(self, queue: Queue[Any]) -> None:
        dead(queue, 5)
        redrive = queue.dead_letters.start_redrive(canary=2)
        redrive.advance()
        take(queue).bury("still broken\nTraceback")
        job = redrive.advance()
        assert (job.state, job.redriven) == (RedriveState.PAUSED, 2)
        assert job.reason == "1 of 2 canaries died again, x-0000 of: still broken"
        assert redrive.advance().redriven == 2
        redrive.resume()
        assert redrive.job.reason is None
        finish(redrive)
        assert redrive.job.redriven == 5

    def test_a_retried_canary_is_no_verdict_yet(self, queue: Queue[Any], clock: WatchedClock) -> None:
        dead(queue, 2)
        redrive = queue.dead_letters.start_redrive(canary=1)
        redrive.advance()
        take(queue).nack("not yet", after=MINUTE)
        assert redrive.advance().phase is RedrivePhase.VERDICT
        clock.advance(MINUTE)
        take(queue).ack()
        assert redrive.advance().phase is RedrivePhase.REST

    def test_a_canary_that_was_redriven_again_counts_as_dead(self, queue: Queue[Any]) -> None:
        dead(queue, 2)
        redrive = queue.dead_letters.start_redrive(canary=1)
        redrive.advance()
        delivery = take(queue)
        delivery.bury("again")
        assert queue.dead_letters.redrive([delivery.version]) == 1
        assert redrive.advance().state is RedriveState.PAUSED

    def test_letters_that_cannot_live_are_no_canaries(self, queue: Queue[Any]) -> None:
        names = dead(queue, 4)
        for key in names[:2]:
            queue.offer(key, "new", after=MINUTE)
        redrive = queue.dead_letters.start_redrive(canary=1)
        while redrive.job.phase is RedrivePhase.CANARY:
            redrive.advance()
        assert redrive.job.canary_keys == ("x-0002",)
        assert redrive.job.skipped == 2


class TestOrders:
    def test_pause_resume_and_cancel(self, queue: Queue[Any]) -> None:
        dead(queue, 4)
        redrive = queue.dead_letters.start_redrive(rate=5)
        redrive.advance()
        assert (redrive.pause("lunch").state, redrive.job.reason) == (RedriveState.PAUSED, "lunch")
        assert redrive.advance().redriven == 1
        assert redrive.pause().state is RedriveState.PAUSED
        assert redrive.resume().state is RedriveState.RUNNING
        assert redrive.advance().redriven == 2
        assert redrive.cancel("enough").state is RedriveState.CANCELLED
        assert (redrive.advance().redriven, redrive.job.ended_at) == (2, START)
        assert len(queue.dead_letters.list()) == 2

    @pytest.mark.usefixtures("queue_exists")
    def test_what_has_ended_cannot_go_on(self, queue: Queue[Any]) -> None:
        redrive = queue.dead_letters.start_redrive()
        finish(redrive)
        for order in (redrive.pause, redrive.resume, redrive.cancel):
            with pytest.raises(InvalidState, match=f"redrive job {redrive.id} is done"):
                order()

    def test_an_unknown_job_is_not_found(self, app: App) -> None:
        with pytest.raises(UnknownRedrive, match="no redrive job 99999999"):
            app.redrives.get(99_999_999)
        with pytest.raises(UnknownRedrive):
            app.store.run(app.store.dead_letters.turn_redrive(99_999_999, RedriveState.PAUSED))
        assert app.store.run(app.store.dead_letters.advance_redrive(99_999_999)) is None

    @pytest.mark.usefixtures("queue_exists")
    def test_jobs_are_listed_the_newest_first(self, app: App, queue: Queue[Any]) -> None:
        first = queue.dead_letters.start_redrive(key_prefix="a", rate=2)
        second = queue.dead_letters.start_redrive()
        assert [job.id for job in app.redrives.list(queue.name)] == [second.id, first.id]
        assert [job.id for job in app.redrives.list(queue.name, limit=1)] == [second.id]
        assert (app.redrives.get(first.id).job.where.key_prefix, first.refresh().rate) == ("a", 2.0)
        assert first.id in [job.id for job in app.redrives.list()]

    @pytest.mark.usefixtures("queue_exists")
    def test_the_same_request_is_the_same_job(self, app: App, queue: Queue[Any]) -> None:
        options = RedriveOptions(request=uuid4())
        made = [app.store.run(app.store.dead_letters.start_redrive(queue.name, options)) for _ in range(2)]
        assert made[0].id == made[1].id

    def test_a_renamed_queue_goes_on_under_its_name_and_a_deleted_one_ends_it(
        self, app: App, queue: Queue[Any]
    ) -> None:
        dead(queue, 2)
        redrive = queue.dead_letters.start_redrive(rate=5)
        app.queues.rename(queue.name, queue.name + "-new")
        assert redrive.advance().queue == queue.name + "-new"
        app.queues.delete(queue.name + "-new", force=True)
        redrive.pause()
        redrive.resume()
        job = redrive.advance()
        assert (job.state, job.reason) == (RedriveState.FAILED, f"the queue {queue.name}-new was deleted")

    @where_the_messages_are
    def test_an_advance_without_an_id_gets_the_job_that_waits_longest(
        self, app: App, queue: Queue[Any], clock: WatchedClock
    ) -> None:
        while (job := app.store.run(app.store.dead_letters.advance_redrive())) is not None:
            assert job.state is not RedriveState.PAUSED
        dead(queue, 2)
        mine = queue.dead_letters.start_redrive()
        job = app.store.run(app.store.dead_letters.advance_redrive())
        assert job is not None
        assert job.id == mine.id


class TestManyHands:
    def test_any_number_of_processes_may_carry_one_job_on(self, app: App, queue: Queue[Any]) -> None:
        names = dead(queue, 600)
        redrive = queue.dead_letters.start_redrive()

        def carry_on() -> None:
            while (job := app.store.run(app.store.dead_letters.redrive_job(redrive.id))) is not None and not job.ended:
                app.store.run(app.store.dead_letters.advance_redrive(redrive.id))

        all_at_once([carry_on] * 4)
        assert (redrive.refresh().redriven, redrive.job.skipped) == (600, 0)
        assert sorted(keys(queue.try_poll_many(1_000))) == names
        assert queue.dead_letters.list() == []

    def test_a_job_and_a_plain_redrive_revive_each_letter_once(self, app: App, queue: Queue[Any]) -> None:
        names = dead(queue, 600)
        redrive = queue.dead_letters.start_redrive()

        def carry_on() -> int:
            while not redrive.advance().ended:
                pass
            return 0

        def plain() -> int:
            return sum(queue.dead_letters.redrive(limit=50) for _ in range(12))

        moved = sum(all_at_once([carry_on, plain]))
        assert moved + redrive.job.redriven + len(queue.dead_letters.list(limit=1_000)) == 600
        left = keys(queue.dead_letters.list(limit=1_000))
        assert sorted([*left, *keys(queue.try_poll_many(1_000))]) == names


class TestGently:
    def test_with_jitter_each_becomes_due_at_a_time_of_its_own_within_it(
        self, app: App, queue: Queue[Any], clock: WatchedClock
    ) -> None:
        names = dead(queue, 20)
        redrive = queue.dead_letters.start_redrive(jitter=MINUTE)
        finish(redrive)
        due = [seen(queue, key).due_at for key in names]
        assert redrive.job.jitter == MINUTE
        assert all(START <= at <= START + MINUTE for at in due)
        assert len(set(due)) > 10
        assert numbers(app, queue)[0] > 0
        clock.advance(MINUTE)
        assert len(queue.try_poll_many(50)) == 20

    def test_a_job_pauses_when_too_many_died_again_and_resumed_does_the_rest(
        self, queue: Queue[Any], clock: WatchedClock
    ) -> None:
        dead(queue, 60)
        clock.advance(SECOND)
        redrive = queue.dead_letters.start_redrive(rate=50, stop_above=0.2)
        for buried in (2, 2, 3):  # of ten: 20 %, then 20 %, then more
            redrive.advance()
            clock.advance(SECOND)
            taken = queue.try_poll_many(10)
            queue.leases.bury([delivery.lease_id for delivery in taken[:buried]], "again")
            queue.leases.ack([delivery.lease_id for delivery in taken[buried:]])
            clock.advance(2 * SECOND)
            assert redrive.job.state is RedriveState.RUNNING
        redrive.advance()  # counts them, and redrives another ten
        clock.advance(SECOND)
        assert (redrive.job.redriven, redrive.job.died_again) == (40, 7)
        taken = queue.try_poll_many(10)
        queue.leases.bury([delivery.lease_id for delivery in taken], "again")
        clock.advance(2 * SECOND)
        redrive.advance()
        clock.advance(SECOND)
        stopped = redrive.advance()
        assert (stopped.state, stopped.redriven, stopped.died_again) == (RedriveState.PAUSED, 50, 17)
        assert stopped.reason == (
            "17 of 50 redriven messages died again, more than 20 %; resumed, it continues without this limit"
        )
        redrive.resume()
        for _ in range(3):
            redrive.advance()
            clock.advance(SECOND)
        assert (redrive.job.state, redrive.job.redriven, redrive.job.stop_above) == (RedriveState.DONE, 60, None)

    def test_deaths_of_others_do_not_stop_a_job(self, queue: Queue[Any], clock: WatchedClock) -> None:
        dead(queue, 30)
        clock.advance(SECOND)
        redrive = queue.dead_letters.start_redrive(rate=50, stop_above=0.1)
        redrive.advance()
        queue.leases.ack([delivery.lease_id for delivery in queue.try_poll_many(10)])
        dead(queue, 15, "other")
        for _ in range(3):
            clock.advance(3 * SECOND)
            redrive.advance()
        assert (redrive.job.state, redrive.job.redriven, redrive.job.died_again) == (RedriveState.DONE, 30, 0)

    @pytest.mark.parametrize("share", [1, -0.1, 20, float("nan"), True, "20%"])
    def test_a_share_that_is_none_is_refused(self, queue: Queue[Any], share: Any) -> None:
        with pytest.raises(InvalidInput, match="stop_above must be a share"):
            queue.dead_letters.start_redrive(stop_above=share)

    def test_redriven_messages_have_as_many_attempts_as_the_job_allows(self, queue: Queue[Any]) -> None:
        first, second = dead(queue, 2)
        redrive = queue.dead_letters.start_redrive(max_attempts=1, key_prefix=first)
        finish(redrive)
        finish(queue.dead_letters.start_redrive(key_prefix=second))
        assert redrive.job.max_attempts == 1
        assert [(seen(queue, key).attempt, seen(queue, key).own_max_attempts) for key in (first, second)] == [
            (0, 1),
            (0, None),
        ]
        for delivery in queue.try_poll_many(2):
            delivery.nack("again", after=0 * MINUTE)
        assert [letter.key for letter in queue.dead_letters.list()] == [first]

    def test_a_jitter_before_now_is_refused_by_its_name(self, queue: Queue[Any]) -> None:
        with pytest.raises(InvalidInput, match="jitter must be between 0 and 10 years"):
            queue.dead_letters.start_redrive(jitter=-MINUTE)
