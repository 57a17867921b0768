"""Ticks that a program chooses itself: install_tick, uninstall_tick, install. DelayedQueue's cases, on every store."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from tarry import Queue
from tarry.app import App
from tarry.core.cron.model import CronMessage, tick_key
from tarry.services.cron._sync.api import Cron
from tests.kit.backends import new_name
from tests.kit.clocks import START, WatchedClock
from tests.kit.steps import HOUR, MINUTE, SECOND, TIMEOUT_S, take

AWKWARD = (
    "%", "_", "a/b", "a", "a/b/c", "\\", "%25_\\%", "x" * 200, "x" * 199, "x" * 141, "x" * 140, "⏰🇩🇪", "it's; --", "a ", "A",
)  # fmt: skip


def messages(*minutes: float, payload: str = "tick") -> list[CronMessage]:
    return [CronMessage(f"{payload}-{n:g}", START + n * MINUTE) for n in minutes]


def live(queue: Queue[Any], name: str, config_hash: str, ticks: Iterable[datetime]) -> list[bool]:
    return [queue.contains(tick_key(name, config_hash, tick)) for tick in ticks]


def payloads(queue: Queue[Any]) -> list[Any]:
    return [delivery.payload for delivery in queue.try_poll_many(100)]


@contextmanager
def warned(logger: str) -> Iterator[threading.Event]:
    """An event that is set by the first warning."""
    warned_once = threading.Event()
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: warned_once.set()
    logging.getLogger(logger).addHandler(handler)
    try:
        yield warned_once
    finally:
        logging.getLogger(logger).removeHandler(handler)


class TestInstallTick:
    def test_messages_become_deliverable_at_their_times(
        self, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        cron.install_tick("h1", name, messages(10, 20), queue=queue.name)
        assert queue.try_poll() is None
        clock.advance(10 * MINUTE)
        assert payloads(queue) == ["tick-10"]
        clock.advance(10 * MINUTE)
        assert "tick-20" in payloads(queue)

    def test_the_key_is_prefix_hash_and_tick(self, cron: Cron, queue: Queue[Any], clock: WatchedClock) -> None:
        config_hash = new_name()  # the ledger of a shared database remembers other tests' ticks
        cron.install_tick(config_hash, "daily/report", messages(10), queue=queue.name)
        clock.advance(10 * MINUTE)
        delivery = take(queue)
        assert delivery.key == f"daily/report/{config_hash}/20240101-001000.000000000"
        assert delivery.headers == {
            "tarry-schedule": "daily/report", "tarry-tick": "2024-01-01T00:10:00+00:00",
        }  # fmt: skip

    def test_three_messages_have_three_keys(self, cron: Cron, queue: Queue[Any], name: str) -> None:
        cron.install_tick("h1", name, messages(1, 2, 3), queue=queue.name)
        assert live(queue, name, "h1", [START + n * MINUTE for n in (1, 2, 3)]) == [True] * 3

    def test_two_messages_within_a_second_are_both_stored(
        self, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        at = START + MINUTE
        near = [CronMessage("early", at + 0.1 * SECOND), CronMessage("late", at + 0.9 * SECOND)]
        cron.install_tick("h1", name, near, queue=queue.name)
        clock.advance(2 * MINUTE)
        assert payloads(queue) == ["early", "late"]

    def test_another_hash_replaces_undelivered_messages(
        self, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        cron.install_tick("h1", name, messages(10, payload="old"), queue=queue.name)
        cron.install_tick("h2", name, messages(10, payload="new"), queue=queue.name)
        assert live(queue, name, "h1", [START + 10 * MINUTE]) == [False]
        clock.advance(HOUR)
        assert payloads(queue) == ["new-10"]

    def test_nothing_new_of_the_same_hash_keeps_what_is_there(self, cron: Cron, queue: Queue[Any], name: str) -> None:
        cron.install_tick("h1", name, messages(10), queue=queue.name)
        cron.install_tick("h1", name, [], queue=queue.name)
        assert live(queue, name, "h1", [START + 10 * MINUTE]) == [True]

    def test_nothing_of_another_hash_only_removes(self, cron: Cron, queue: Queue[Any], name: str) -> None:
        cron.install_tick("h1", name, messages(10), queue=queue.name)
        cron.install_tick("h2", name, [], queue=queue.name)
        assert live(queue, name, "h1", [START + 10 * MINUTE]) == [False]

    def test_a_message_in_flight_is_left_to_its_consumer(
        self, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        cron.install_tick("h1", name, messages(0, payload="held"), queue=queue.name)
        first = take(queue)
        cron.install_tick("h2", name, messages(30, payload="new"), queue=queue.name)
        clock.advance(MINUTE)
        again = take(queue)
        assert (again.payload, again.redelivered, first.key) == ("held-0", True, again.key)
        assert again.ack().value == "done"

    def test_a_message_that_waits_for_another_try_is_left_too(
        self, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        cron.install_tick("h1", name, messages(0), queue=queue.name)
        take(queue).nack("not yet", after=MINUTE)
        cron.install_tick("h2", name, [], queue=queue.name)
        clock.advance(MINUTE)
        assert take(queue).attempt == 2

    def test_what_was_done_is_never_made_again(
        self, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        cron.install_tick("h1", name, messages(10), queue=queue.name)
        clock.advance(10 * MINUTE)
        take(queue).ack()
        clock.advance(-5 * MINUTE)  # a process whose clock is behind
        cron.install_tick("h1", name, messages(10), queue=queue.name)
        cron.install_tick("h2", name, [], queue=queue.name)
        cron.install_tick("h1", name, messages(10), queue=queue.name)
        clock.advance(HOUR)
        assert queue.try_poll() is None

    def test_the_tick_names_it_and_the_due_time_delivers_it(
        self, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        nominal, actual = START + 10 * MINUTE, START + 25 * MINUTE
        cron.install_tick("h1", name, [CronMessage("x", nominal, actual)], queue=queue.name)
        assert live(queue, name, "h1", [nominal]) == [True]
        clock.set(nominal)
        assert queue.try_poll() is None
        clock.set(actual)
        assert take(queue).due_at == actual

    def test_a_tick_that_is_given_twice_is_one(self, cron: Cron, queue: Queue[Any], name: str) -> None:
        cron.install_tick("h1", name, messages(10, 10), queue=queue.name)
        assert len(cron.schedules.history(name)) == 1


class TestUninstallTick:
    def test_it_removes_the_key(self, cron: Cron, queue: Queue[Any], name: str) -> None:
        cron.install_tick("h1", name, messages(10), queue=queue.name)
        cron.uninstall_tick("h1", name)
        assert live(queue, name, "h1", [START + 10 * MINUTE]) == [False]

    def test_it_removes_all_of_a_prefix(self, cron: Cron, queue: Queue[Any], name: str) -> None:
        cron.install_tick("h1", name, messages(10, 20, 30), queue=queue.name)
        cron.uninstall_tick("h1", name)
        assert live(queue, name, "h1", [START + n * MINUTE for n in (10, 20, 30)]) == [False] * 3

    def test_it_removes_only_the_given_prefix(self, cron: Cron, queue: Queue[Any], name: str) -> None:
        for each in (name, name + "/nested"):
            cron.install_tick("h1", each, messages(10), queue=queue.name)
        cron.uninstall_tick("h1", name)
        assert live(queue, name, "h1", [START + 10 * MINUTE]) == [False]
        assert live(queue, name + "/nested", "h1", [START + 10 * MINUTE]) == [True]

    def test_it_removes_only_the_given_hash(self, cron: Cron, queue: Queue[Any], name: str) -> None:
        cron.install_tick("h1", name, messages(10), queue=queue.name)
        cron.uninstall_tick("h", name)
        cron.uninstall_tick("h2", name)
        assert live(queue, name, "h1", [START + 10 * MINUTE]) == [True]

    def test_what_was_uninstalled_may_be_installed_again(self, cron: Cron, queue: Queue[Any], name: str) -> None:
        cron.install_tick("h1", name, messages(10), queue=queue.name)
        cron.uninstall_tick("h1", name)
        cron.install_tick("h1", name, messages(10), queue=queue.name)
        assert live(queue, name, "h1", [START + 10 * MINUTE]) == [True]

    def test_what_is_in_flight_stays(self, cron: Cron, queue: Queue[Any], name: str) -> None:
        cron.install_tick("h1", name, messages(0), queue=queue.name)
        delivery = take(queue)
        cron.uninstall_tick("h1", name)
        assert delivery.ack().value == "done"


class TestAwkwardNames:
    def test_each_touches_only_its_own(self, app: App, cron: Cron, queue: Queue[Any], clock: WatchedClock) -> None:
        config_hash = new_name()
        for name in AWKWARD:
            cron.install_tick(config_hash, name, messages(10, payload=name[:3]), queue=queue.name)
        for n, name in enumerate(AWKWARD):
            cron.install_tick("h2", name, [], queue=queue.name)
            left = [bool(app.store.run(app.store.cron.waiting_ticks(other))) for other in AWKWARD]
            assert left == [False] * (n + 1) + [True] * (len(AWKWARD) - n - 1), name
        clock.advance(HOUR)
        assert queue.try_poll() is None

    def test_schedules_of_such_names_are_looked_after_one_by_one(
        self, app: App, cron: Cron, queue: Queue[Any], clock: WatchedClock
    ) -> None:
        for name in AWKWARD:
            cron.install_periodic(name, HOUR, queue=queue.name, payload=name, start_at=START + 2 * HOUR)
        for name in AWKWARD:
            assert cron.schedules.pause(name).name == name
            assert [state.name for state in cron.schedules.list() if state.paused] == [name]
            cron.schedules.trigger(name)
            assert payloads(queue) == [name]
            cron.schedules.resume(name)
            cron.install_periodic(name, HOUR, queue=queue.name, payload="changed", start_at=START + 2 * HOUR)
            assert [len(app.store.run(app.store.cron.waiting_ticks(other))) for other in AWKWARD] == [1] * len(AWKWARD)
            assert cron.schedules.delete(name)
            assert len(app.store.run(app.store.cron.waiting_ticks(name))) == 0
            cron.install_periodic(name, HOUR, queue=queue.name, payload=name, start_at=START + 2 * HOUR)

    def test_their_keys_are_all_different_and_fit(self) -> None:
        made = {tick_key(name, "f" * 32, START) for name in AWKWARD}
        assert len(made) == len(AWKWARD)
        assert max(map(len, made)) <= 200

    def test_ordinary_messages_are_never_touched(self, cron: Cron, queue: Queue[Any]) -> None:
        queue.offer("reports/daily/1", "mine", after=HOUR)
        cron.install_tick(new_name(), "reports", messages(10), queue=queue.name)
        cron.install_tick("h2", "reports", [], queue=queue.name)
        assert queue.contains("reports/daily/1")

    def test_a_key_of_another_producer_is_not_replaced(self, cron: Cron, queue: Queue[Any], name: str) -> None:
        key = tick_key(name, "h1", START + 10 * MINUTE)
        queue.offer(key, "mine", after=HOUR)
        cron.install_tick("h1", name, messages(10), queue=queue.name)
        cron.install_tick("h2", name, [], queue=queue.name)
        message = queue.read(key)
        assert message is not None
        assert message.payload == "mine"


class TestInstall:
    def test_the_program_is_called_at_once_and_its_handle_can_be_closed(
        self, app: App, cron: Cron, queue: Queue[Any], name: str
    ) -> None:
        instants: list[datetime] = []

        def generate(now: datetime) -> list[CronMessage]:
            instants.append(now)
            return [CronMessage("x", now + HOUR)]

        with app.cron() as planning:
            installed = planning.install("h1", name, HOUR, generate, queue=queue.name)
            assert instants == [START]
            installed.close()
        assert live(queue, name, "h1", [START + HOUR]) == [True]

    def test_it_does_not_drop_what_is_redelivered(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        with app.cron() as planning:
            planning.install(
                "h1", name, timedelta(milliseconds=10), lambda now: [CronMessage("x", START)], queue=queue.name
            )
            take(queue)
            clock.advance(MINUTE)
            clock.await_looks(clock.looks + 8)
            assert take(queue).redelivered

    def test_a_newer_configuration_of_another_process_is_kept(
        self, app: App, cron: Cron, queue: Queue[Any], name: str
    ) -> None:
        def generate(now: datetime) -> list[CronMessage]:
            return [CronMessage("x", now + HOUR)]

        with app.cron() as planning, warned("tarry.cron") as warned_once:
            planning.install("h1", name, timedelta(milliseconds=10), generate, queue=queue.name)
            cron.install_tick("h2", name, messages(10, payload="new"), queue=queue.name)
            assert warned_once.wait(TIMEOUT_S)
        assert live(queue, name, "h1", [START + HOUR]) == [False]
        assert live(queue, name, "h2", [START + 10 * MINUTE]) == [True]
