"""Schedulers whose clocks disagree, in threads that race: minutes ahead, minutes behind, stepped at any moment, left alone
for a while, killed between reading and ruling or right after it. The messages are those of the oracle: one per tick.

In the field there is one clock, that of the database. These are pinned, one per scheduler, which is worse.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import tarry
from tarry.app import App
from tarry.handles.delivery import Delivery
from tarry.services.scheduler import Scheduler
from tarry.storage.postgres.sync import PostgresStore
from tarry.testing import MutableClock
from tests.core.cron_oracle import EXPRESSIONS, Oracle, around, transitions
from tests.core.test_cron_zones import TELLING
from tests.kit.backends import SETTINGS
from tests.kit.cron import take_all
from tests.kit.steps import HOUR, MINUTE, PATIENCE_S
from tests.services.test_cron_machine import Crash, Crashing

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
    """How often any of the schedulers has run: what the test waits for, instead of sleeping."""

    def __init__(self) -> None:
        self._told = threading.Condition()
        self._count = 0
        self.over = False
        self.failed: list[BaseException] = []

    def one_more(self, failed: BaseException | None = None) -> None:
        with self._told:
            self._count += 1
            self.failed += [] if failed is None else [failed]
            self._told.notify_all()

    def wait_for(self, more: int) -> None:
        with self._told:
            wanted = self._count + more
            assert self._told.wait_for(lambda: self._count >= wanted or self.over or self.failed, PATIENCE_S)
            assert self.failed == []

    def end(self) -> None:
        with self._told:
            self.over = True
            self._told.notify_all()


def plan_by(dsn: str, clock: OwnClock, choice: random.Random, runs: Runs, *, pauses: bool) -> None:
    store: Any = PostgresStore(dsn, clock=clock, settings=SETTINGS)
    try:
        while not runs.over:
            if choice.random() < 0.3:
                clock.skew = choice.randint(-SKEW, SKEW) * MINUTE + choice.random() * MINUTE
            killed = choice.random() < 0.15
            with suppress(Crash):
                Scheduler(Crashing(store, after=choice.random() < 0.5) if killed else store).run_once()  # pyright: ignore[reportArgumentType]
            runs.one_more()
            if pauses and choice.random() < 0.1:  # left alone, while the others go on
                runs.wait_for(2 * SCHEDULERS)
    except BaseException as error:
        runs.one_more(error)
    finally:
        store.close()


@contextmanager
def planning(dsn: str, true: MutableClock, seed: int) -> Iterator[Runs]:
    runs = Runs()
    threads = [
        threading.Thread(
            target=plan_by,
            args=(dsn, OwnClock(true), random.Random(seed * 100 + n), runs),
            kwargs={"pauses": n > 0},  # one of them always goes on
        )
        for n in range(SCHEDULERS)
    ]
    for thread in threads:
        thread.start()
    try:
        yield runs
    finally:
        runs.end()
        for thread in threads:
            thread.join(PATIENCE_S)
    assert runs.failed == []


def play(dsn: str, zone: str, change: datetime, expressions: tuple[str, ...], seed: int) -> int:
    choice, since, until = random.Random(seed), change - 7 * HOUR, change + 7 * HOUR
    true = MutableClock(since)
    found: Counter[tuple[str, datetime]] = Counter()
    with App(PostgresStore(dsn, clock=true, settings=SETTINGS), dsn=dsn) as app:
        cron, queue = app.cron(), app.queue("ticks")

        def consume(deliveries: Iterable[Delivery[Any]]) -> None:
            for delivery in deliveries:
                found[delivery.payload, datetime.fromisoformat(delivery.headers["tarry-tick"])] += 1
                delivery.ack()

        prefixes = {f"{zone} {change.isoformat()} {expression}": expression for expression in expressions}
        for prefix, expression in prefixes.items():
            cron.install_cron(prefix, expression, zone=zone, queue="ticks", payload=prefix, grace_for=2 * HOUR)
        with planning(dsn, true, seed) as runs:
            while true.pinned() < until:
                runs.wait_for(SCHEDULERS)
                true.set(min(until, true.pinned() + choice.randint(1, 20) * MINUTE))
                consume(queue.try_poll_many(1_000))
        Scheduler(app.store).run_once()
        consume(take_all(app, queue))
        oracle = Oracle(zone, *around(change))
        expected = {(p, tick): 1 for p, text in prefixes.items() for tick in oracle.ticks(text) if since < tick < until}
        # A clock that is behind may find a tick ahead that lay before the installation.
        assert {place: count for place, count in found.items() if since < place[1] < until} == expected
        assert set(found.values()) == {1}
        for prefix in prefixes:
            app.schedules.delete(prefix)
    return len(expected)


def test_schedulers_whose_clocks_disagree_make_each_tick_once(database: str) -> None:
    autumn = transitions("America/New_York", *YEAR)[1]
    assert play(database, "America/New_York", autumn, ("*/15 * * * *", "30 1 * * *", "0 */2 * * *"), 1) > 60


@pytest.mark.chaos
@pytest.mark.timeout(1800)
def test_at_every_change_of_every_telling_zone(database: str) -> None:
    made = changes = 0
    for zone in TELLING:
        for n, change in enumerate(transitions(zone, *YEAR)):
            made += play(database, zone, change, EXPRESSIONS, n)
            changes += 1
    print(f"{SCHEDULERS} schedulers with clocks of their own: {changes} changes, {made:,} ticks, one message each")


@pytest.mark.parametrize("layer", ["core", "handles", "services", "storage/postgres"])
def test_nobody_who_plans_asks_this_machine_what_time_it_is(layer: str) -> None:
    """So the clock of a scheduler's machine does not matter: the database is the clock."""
    asking = ("datetime.now(", "datetime.utcnow(", "date.today(", "time.time(")
    for file in (Path(tarry.__file__).parent / layer).rglob("*.py"):
        text = file.read_text(encoding="utf-8").replace('hint="use datetime.now(timezone.utc)', "")
        assert [word for word in asking if word in text] == [], file
