"""A database may live in a zone with summer time. Instants stay instants, also in the hour that is there twice."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import psycopg
import pytest
from psycopg import sql

from tarry import Message
from tarry.app import App
from tarry.storage.postgres._sync.store import PostgresStore
from tarry.testing import MutableClock
from tests.kit.backends import SETTINGS
from tests.kit.steps import HOUR, MINUTE, SECOND, keys, seen, take

# 01:00 in New York for the first time; an hour later it is 01:00 again.
FIRST_ONE_O_CLOCK = datetime(2024, 11, 3, 5, tzinfo=UTC)


@pytest.fixture
def zoned(database: str, pinned_clock: MutableClock) -> Iterator[App]:
    with psycopg.connect(database) as conn:
        command = sql.SQL("alter database {} set timezone = 'America/New_York'")
        conn.execute(command.format(sql.Identifier(conn.info.dbname)))
    pinned_clock.set(FIRST_ONE_O_CLOCK + 3 * HOUR)
    with App(PostgresStore(database, clock=pinned_clock, settings=SETTINGS), dsn=database) as app:
        yield app


def test_messages_of_the_repeated_hour_come_in_the_order_of_their_instants(zoned: App) -> None:
    queue = zoned.queue("q")
    at = [FIRST_ONE_O_CLOCK + minutes * MINUTE for minutes in (90, 45, 30, 75)]
    queue.offer_many([Message(key=f"k{i}", payload=i, at=instant) for i, instant in enumerate(at)])
    assert [message.due_at for message in zoned.store.run(zoned.store.messages.list("q"))] == sorted(at)
    assert keys(queue.try_poll_many(4)) == ["k2", "k1", "k3", "k0"]


def test_a_lease_across_the_clock_change_has_the_requested_length(zoned: App, pinned_clock: MutableClock) -> None:
    queue = zoned.queue("q")
    queue.offer("a", 1, at=FIRST_ONE_O_CLOCK)
    pinned_clock.set(FIRST_ONE_O_CLOCK + HOUR - SECOND)
    delivery = take(queue, lease_for=MINUTE)
    assert delivery.lease_until - delivery.leased_at == MINUTE
    pinned_clock.advance(MINUTE - SECOND)
    assert queue.try_poll() is None
    pinned_clock.advance(SECOND)
    assert take(queue).attempt == 2


def test_the_last_day_of_the_calendar_can_be_read(zoned: App) -> None:
    queue = zoned.queue("q")
    for edge in (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)):
        queue.offer("edge", 1, at=edge)
        assert seen(queue, "edge").due_at == edge
        queue.try_poll()
        queue.drop("edge")
