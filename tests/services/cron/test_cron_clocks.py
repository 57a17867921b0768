"""Schedulers whose clocks disagree, in threads that race: minutes ahead, minutes behind, stepped at any moment, left alone
for a while, killed between reading and the schedule change or after it. The messages are those of the oracle: one per tick.

In the field there is one clock, that of the database. These are pinned, one per scheduler, which is worse.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import tarry
from tarry.api._sync.delivery import Delivery
from tarry.app import App
from tarry.services.cron._sync.scheduler import Scheduler
from tarry.storage.postgres._sync.store import PostgresStore
from tarry.testing import MutableClock
from tests.core.cron.cron_oracle import EXPRESSIONS, Oracle, around, transitions
from tests.core.cron.test_cron_zones import DISTINCTIVE
from tests.kit.backends import SETTINGS
from tests.kit.cron import take_all
from tests.kit.steps import HOUR, MINUTE, TIMEOUT_S
from tests.services.cron.test_cron_machine import Crash, Crashing

YEAR = datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
SCHEDULERS = 4
SKEW = 25
"""Minutes, either way. Together with a pause it must stay within the grace."""


class OwnClock:
    """Goes with the true one, but never quite."""

    def __init__(self, true: MutableClock) -> None:
        self._true = true
        self.skew = timedelta(0)

    def pinned(self) -> datetime:
        return self._true.pinned() + self.skew


class Runs:
    """How often each of the schedulers has run: what the test waits for, instead of sleeping."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._counts = [0] * SCHEDULERS
        self._paused: set[int] = set()
        self.over = False
        self.failed: list[BaseException] = []

    def one_more(self, scheduler: int, failed: BaseException | None = None) -> None:
        with self._changed:
            self._counts[scheduler] += 1
            self.failed += [] if failed is None else [failed]
            self._changed.notify_all()

    def pause(self, scheduler: int) -> None:
        with self._changed:
            self._paused.add(scheduler)
            expected = sum(self._counts) + 2 * SCHEDULERS
            self._wait(lambda: sum(self._counts) >= expected)
            self._paused.discard(scheduler)

    def wait_for_each(self) -> None:
        """Until every scheduler that is not paused has run: none is in the middle of a transaction, which the others do not
        wait for, while hours pass."""
        with self._changed:
            before = [*self._counts]
            self._wait(lambda: all(self._counts[n] > before[n] or n in self._paused for n in range(SCHEDULERS)))

    def _wait(self, predicate: Callable[[], bool]) -> None:
        assert self._changed.wait_for(lambda: predicate() or self.over or self.failed, TIMEOUT_S)
        assert self.failed == []

    def end(self) -> None:
        with self._changed:
            self.over = True
            self._changed.notify_all()


def plan_by(dsn: str, clock: OwnClock, choice: random.Random, runs: Runs, scheduler: int) -> None:
    store: Any = PostgresStore(dsn, clock=clock, settings=SETTINGS)
    try:
        while not runs.over:
            if choice.random() < 0.3:
                clock.skew = choice.randint(-SKEW, SKEW) * MINUTE + choice.random() * MINUTE
            killed = choice.random() < 0.15
            with suppress(Crash):
                Scheduler(Crashing(store, after=choice.random() < 0.5) if killed else store).run_once()  # pyright: ignore[reportArgumentType]
            runs.one_more(scheduler)
            if scheduler > 0 and choice.random() < 0.1:  # left alone, while the others go on: one of them always does
                runs.pause(scheduler)
    except BaseException as error:
        runs.one_more(scheduler, error)
    finally:
        store.close()


@contextmanager
def planning(dsn: str, true: MutableClock, seed: int) -> Iterator[Runs]:
    runs = Runs()
    threads = [
        threading.Thread(target=plan_by, args=(dsn, OwnClock(true), random.Random(seed * 100 + n), runs, n))
        for n in range(SCHEDULERS)
    ]
    for thread in threads:
        thread.start()
    try:
        yield runs
    finally:
        runs.end()
        for thread in threads:
            thread.join(TIMEOUT_S)
    assert runs.failed == []


def play(dsn: str, zone: str, change: datetime, expressions: tuple[str, ...], seed: int) -> int:
    choice, since, until = random.Random(seed), change - 7 * HOUR, change + 7 * HOUR
    true = MutableClock(since)
    delivered: Counter[tuple[str, datetime]] = Counter()
    with App(PostgresStore(dsn, clock=true, settings=SETTINGS), dsn=dsn) as app:
        cron, queue = app.cron(), app.queue("ticks")

        def consume(deliveries: Iterable[Delivery[Any]]) -> None:
            for delivery in deliveries:
                delivered[delivery.payload, datetime.fromisoformat(delivery.headers["tarry-tick"])] += 1
                delivery.ack()

        names = {f"{zone} {change.isoformat()} {expression}": expression for expression in expressions}
        for name, expression in names.items():
            cron.install_cron(name, expression, zone=zone, queue="ticks", payload=name, grace_for=2 * HOUR)
        with planning(dsn, true, seed) as runs:
            while true.pinned() < until:
                runs.wait_for_each()
                true.set(min(until, true.pinned() + choice.randint(1, 20) * MINUTE))
                consume(queue.try_poll_many(1_000))
        Scheduler(app.store).run_once()
        consume(take_all(app, queue))
        oracle = Oracle(zone, *around(change))
        expected = {(p, tick): 1 for p, text in names.items() for tick in oracle.ticks(text) if since < tick < until}
        # A clock that is behind may find a tick ahead that lay before the installation.
        assert {slot: count for slot, count in delivered.items() if since < slot[1] < until} == expected
        assert set(delivered.values()) == {1}
        for name in names:
            app.schedules.delete(name)
    return len(expected)


def test_schedulers_whose_clocks_disagree_make_each_tick_once(database: str) -> None:
    autumn = transitions("America/New_York", *YEAR)[1]
    assert play(database, "America/New_York", autumn, ("*/15 * * * *", "30 1 * * *", "0 */2 * * *"), 1) > 60


@pytest.mark.chaos
@pytest.mark.timeout(1800)
def test_at_every_clock_change_of_every_distinctive_zone(database: str) -> None:
    made = changes = 0
    for zone in DISTINCTIVE:
        for n, change in enumerate(transitions(zone, *YEAR)):
            made += play(database, zone, change, EXPRESSIONS, n)
            changes += 1
    print(f"{SCHEDULERS} schedulers with clocks of their own: {changes} changes, {made:,} ticks, one message each")


@pytest.mark.parametrize("layer", ["core", "handles", "services", "storage/postgres"])
def test_planning_never_reads_the_clock_of_this_machine(layer: str) -> None:
    """So the clock of a scheduler's machine does not matter: the database is the clock."""
    clock_calls = ("datetime.now(", "datetime.utcnow(", "date.today(", "time.time(")
    reports_its_clock = Path(tarry.__file__).parent / "services/worker/registration.py"  # to show how far it is off
    for file in {*(Path(tarry.__file__).parent / layer).rglob("*.py")} - {reports_its_clock}:
        text = file.read_text(encoding="utf-8").replace('hint="use datetime.now(timezone.utc)', "")
        assert [word for word in clock_calls if word in text] == [], file
