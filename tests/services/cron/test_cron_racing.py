"""Real schedulers around real changes of clocks: they race, are left alone and come back, their clock is stepped, and
the messages are those of the oracle: one per tick, no more and no less."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

import pytest

from tarry.app import App
from tarry.services.cron._sync.scheduler import Scheduler
from tarry.storage.postgres._sync.store import PostgresStore
from tarry.testing import MutableClock, memory_app
from tests.core.cron.cron_oracle import EXPRESSIONS, Oracle, around, transitions
from tests.core.cron.test_cron_zones import DISTINCTIVE
from tests.kit.backends import SETTINGS
from tests.kit.cron import take_all
from tests.kit.servers import Server
from tests.kit.steps import all_at_once

YEAR = datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
EDGE = timedelta(hours=6)
SECOND = timedelta(seconds=1)


def play(app: App, clock: MutableClock, zone: str, change: datetime, expressions: tuple[str, ...], chance: int) -> int:
    """From six hours after the window's beginning to six hours before its end, in steps of up to 50 minutes."""
    choice = random.Random(chance)
    since, until = (edge + shift for edge, shift in zip(around(change), (EDGE, -EDGE), strict=True))
    clock.set(since)
    cron, queue = app.cron(), app.queue("ticks")
    names = {f"{zone} {change.isoformat()} {expression}": expression for expression in expressions}
    for name, expression in names.items():
        cron.install_cron(name, expression, zone=zone, queue="ticks", payload=name, grace_for=timedelta(hours=1))
    delivered: Counter[tuple[str, datetime]] = Counter()
    while clock.pinned() < until:
        step = choice.choice((1, 3, 20, 49)) * timedelta(minutes=1) + choice.random() * timedelta(seconds=50)
        clock.set(min(until, clock.pinned() + step))
        if choice.random() < 0.15:  # the clock goes back for a moment, and a scheduler plans by it
            at = clock.pinned()
            clock.advance(-choice.randint(1, 200) * timedelta(minutes=1))
            Scheduler(app.store).run_once()
            clock.set(at)
        racing = [lambda: Scheduler(app.store).run_once() for _ in range(choice.choice((1, 1, 3)))]
        all_at_once(racing) if len(racing) > 1 else racing[0]()
        if choice.random() < 0.2:
            name = choice.choice(sorted(names))
            app.schedules.pause(name)
            app.schedules.resume(name)
        for delivery in queue.try_poll_many(1_000):
            delivered[delivery.payload, datetime.fromisoformat(delivery.headers["tarry-tick"])] += 1
            delivery.ack()
    for delivery in take_all(app, queue):
        delivered[delivery.payload, datetime.fromisoformat(delivery.headers["tarry-tick"])] += 1
        delivery.ack()
    oracle = Oracle(zone, *around(change))
    expected = {(name, tick): 1 for name, text in names.items() for tick in oracle.ticks(text) if tick < until}
    # Ticks from before the installation may come where the clock was set back that far: then they lay ahead.
    assert {slot: count for slot, count in delivered.items() if since < slot[1] < until} == expected
    assert set(delivered.values()) == {1}
    for name in names:
        app.schedules.delete(name)
    return len(expected)


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Australia/Lord_Howe", "America/Havana"])
def test_in_memory(zone: str) -> None:
    for n, change in enumerate(transitions(zone, *YEAR)):
        clock = MutableClock(change)
        assert play(memory_app(clock), clock, zone, change, EXPRESSIONS[:9], n) > 100


@pytest.fixture
def postgres(server: Server) -> Iterator[tuple[App, MutableClock]]:
    clock, dsn = MutableClock(YEAR[0]), server.new_database()
    with App(PostgresStore(dsn, clock=clock, settings=SETTINGS), dsn=dsn) as app:
        yield app, clock
    server.drop_database(dsn)


def test_on_postgresql(postgres: tuple[App, MutableClock]) -> None:
    app, clock = postgres
    change = transitions("America/New_York", *YEAR)[1]
    assert play(app, clock, "America/New_York", change, EXPRESSIONS[3:7], 1) > 5


@pytest.mark.chaos
@pytest.mark.timeout(1800)
def test_every_distinctive_zone_on_postgresql(postgres: tuple[App, MutableClock]) -> None:
    app, clock = postgres
    made = changes = 0
    for zone in DISTINCTIVE:
        for n, change in enumerate(transitions(zone, *YEAR)):
            made += play(app, clock, zone, change, EXPRESSIONS, n)
            changes += 1
    print(f"{changes} changes in {len(DISTINCTIVE)} zones, {made:,} ticks, one message each")


def different_changes() -> dict[tuple[datetime, timedelta | None, timedelta | None], str]:
    """Every change of every zone from 2020 to 2040, with a zone that has it: zones that go from the same offset to the same
    offset at the same instant are alike around it."""
    changes: dict[tuple[datetime, timedelta | None, timedelta | None], str] = {}
    for zone in sorted(available_timezones()):
        there = ZoneInfo(zone)
        for change in transitions(zone, datetime(2020, 1, 1, tzinfo=UTC), datetime(2041, 1, 1, tzinfo=UTC)):
            before, after = (change - SECOND).astimezone(there), change.astimezone(there)
            changes.setdefault((change, before.utcoffset(), after.utcoffset()), zone)
    return changes


@pytest.mark.chaos
@pytest.mark.timeout(3600)
def test_every_change_of_every_zone_in_memory() -> None:
    made = 0
    changes = different_changes()
    for n, ((change, _, _), zone) in enumerate(changes.items()):
        clock = MutableClock(change)
        made += play(memory_app(clock), clock, zone, change, EXPRESSIONS, n)
    print(f"{len(changes):,} different changes, {made:,} ticks, one message each")
