"""Fifty thousand rows at the head that cannot be delivered, leased or dead, do not slow a consumer down."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from tarry.core.messages.model import Draft, PollOptions
from tarry.core.operation import Operation
from tarry.core.settings import QueueSettings, StoreSettings
from tarry.storage.postgres._sync.runner import drive
from tarry.storage.postgres._sync.store import PostgresStore
from tarry.storage.postgres.connections import KEYWORDS, configure
from tarry.storage.postgres.messages import operations as ops
from tarry.storage.postgres.messages import statements
from tarry.storage.postgres.messages.cursor import HEAD
from tarry.storage.postgres.messages.lease_tokens import new_poll_number
from tarry.storage.postgres.messages.statements import LeasedRow, ScanPosition
from tarry.storage.postgres.operation import PostgresOperation
from tarry.storage.postgres.queues import statements as queue_statements
from tarry.storage.postgres.statement import Statement
from tests.plans.explaining import Plan, kept, prepare, undone
from tests.plans.scenes import QUEUE, fill

AHEAD = 50_000


@pytest.fixture
def own(database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database, **KEYWORDS) as conn:
        configure(conn)
        drive(conn, queue_statements.create(QUEUE, QueueSettings(), None).run())
        yield conn


@pytest.fixture
def old_snapshot(database: str, own: psycopg.Connection[Any]) -> Iterator[psycopg.Connection[Any]]:
    """A report that has been running since before the messages: no dead row can be removed."""
    with psycopg.connect(database) as conn:
        conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        conn.execute("select count(*) from tarry.message")
        yield conn


def lease(positions: Sequence[ScanPosition]) -> Statement[list[LeasedRow]]:
    return statements.poll(QUEUE, 1, positions, PollOptions(), number=new_poll_number(), durable=False, now=None)


def cost(conn: psycopg.Connection[Any], positions: Sequence[ScanPosition]) -> Plan:
    prepare(conn, lease(positions))
    with undone(conn):
        return kept(conn, lease(positions), run=True)


def behind_all(conn: psycopg.Connection[Any]) -> list[ScanPosition]:
    """Behind the last row there is, where a consumer stands that has leased them all."""
    row = conn.execute("select due_at, version from tarry.message order by 1 desc, 2 desc limit 1").fetchone()
    assert row is not None
    return [ScanPosition(*row), *HEAD[1:]]


def test_over_leased_rows_the_cursor_reads_a_few_pages_and_the_head_thousands(own: psycopg.Connection[Any]) -> None:
    fill(own, AHEAD, held=AHEAD, priorities=1)
    positions = behind_all(own)
    drive(own, ops.offer_many(QUEUE, [Draft("next", b"")], None))
    assert cost(own, HEAD).buffers > 1_000
    assert cost(own, positions).buffers < 50


def test_over_dead_rows_the_cursor_reads_a_few_pages_and_the_head_thousands(
    own: psycopg.Connection[Any], old_snapshot: psycopg.Connection[Any]
) -> None:
    fill(own, AHEAD, held=0, priorities=1)
    old_snapshot.execute("select 1")
    positions = behind_all(own)
    own.execute("delete from tarry.message")
    drive(own, ops.offer_many(QUEUE, [Draft("next", b"")], None))
    own.execute("vacuum tarry.message")
    assert cost(own, HEAD).buffers > 1_000
    assert cost(own, positions).buffers < 50


LOOKS: dict[str, Callable[[PostgresStore], Operation[Any]]] = {
    "wait": lambda store: store.wakeup.announce(QUEUE, sleep_for=timedelta(seconds=1)),
    "counts": lambda store: store.queues.counts(QUEUE),
    "sweep": lambda store: store.maintenance.sweep(QUEUE),
}


def test_over_dead_rows_a_wait_a_count_and_a_sweep_soon_read_a_few_pages_and_no_live_message_less(
    database: str, own: psycopg.Connection[Any], old_snapshot: psycopg.Connection[Any]
) -> None:
    """The store learns by itself from its timer, which counts ten microseconds for each page."""
    fill(own, AHEAD, held=0, priorities=1, ago_s=60)
    old_snapshot.execute("select 1")
    own.execute("delete from tarry.message")
    elapsed_s = 0.0
    store = PostgresStore(database, settings=StoreSettings(pool_size=1), poll_timer=lambda: elapsed_s)
    tomorrow = Draft("tomorrow", b"", after=timedelta(days=1), priority=1)
    drive(own, ops.offer_many(QUEUE, [Draft("next", b""), tomorrow], None))

    def look(make: Callable[[PostgresStore], Operation[Any]]) -> tuple[Any, int]:
        """The result, and how many pages were read for it."""
        nonlocal elapsed_s
        operation = make(store)
        assert isinstance(operation, PostgresOperation)
        op = operation.start(True)
        statement = next(op)
        assert isinstance(statement, Statement)
        prepare(own, statement)
        with undone(own):
            pages = kept(own, statement, run=True).buffers
        elapsed_s += pages * 1e-5
        with pytest.raises(StopIteration) as stop:
            op.send(drive(own, Statement(statement.sql, statement.params, list[Any]).run()))
        return stop.value.value, pages

    for verb, make in LOOKS.items():
        looks = [look(make) for _ in range(9)]
        assert looks[0][1] > 1_000, verb
        assert looks[-1][1] < 150, verb
    assert look(LOOKS["wait"])[0].due_in == timedelta(0)
    assert look(LOOKS["counts"])[0].ready.n == 1
    assert look(LOOKS["sweep"])[0].walked == 1
    # A message that is due now is seen at once, also in front of one that is due later.
    drive(own, ops.offer_many(QUEUE, [Draft("now", b"", priority=1)], None))
    assert look(LOOKS["counts"])[0].ready.n == 2
    # What is put in front of all that is found when the head is looked at again.
    drive(own, ops.offer_many(QUEUE, [Draft("earlier", b"", due_at=datetime(2001, 1, 1, tzinfo=UTC))], None))
    elapsed_s += 60.0
    assert look(LOOKS["counts"])[0].ready.n == 3
    store.close()


def test_a_consumer_with_fifty_thousand_leases_ahead_of_it_soon_polls_from_its_cursor(
    database: str, own: psycopg.Connection[Any]
) -> None:
    """All through the store: it learns by itself, and an expired lease behind its cursor is delivered all the same."""
    fill(own, AHEAD, held=AHEAD, priorities=1)
    store = PostgresStore(database, settings=StoreSettings(pool_size=1))
    store.run(store.messages.offer_many(QUEUE, [Draft(f"next{i:03d}", b"") for i in range(300)]))
    polled: list[str] = []
    expensive: list[bool] = []
    for _ in range(100):
        polled += [lease.key for lease in store.run(store.messages.poll(QUEUE, 1, lambda data, _: data))]
        expensive.append(store.messages._cursors[QUEUE, None].head_is_expensive)
    assert polled == [f"next{i:03d}" for i in range(100)]
    assert any(expensive), "it never noticed what its polls cost"
    own.execute("update tarry.message set lease_until = clock_timestamp() where key = 'k000009'")
    keys_polled: list[str] = []
    while "k000009" not in keys_polled:
        keys_polled += [lease.key for lease in store.run(store.messages.poll(QUEUE, 1, lambda data, _: data))]
        assert len(keys_polled) <= 201, "the budget for the head was never spent"
    store.close()
