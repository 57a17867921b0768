"""Fifty thousand rows at the head that cannot be delivered, leased or dead, do not slow a consumer down."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
import pytest

from tarry.core.messages.model import Draft, PollOptions
from tarry.core.settings import QueueSettings, StoreSettings
from tarry.storage.postgres._sync.runner import drive
from tarry.storage.postgres._sync.store import PostgresStore
from tarry.storage.postgres.connections import KEYWORDS, configure
from tarry.storage.postgres.messages import operations as ops
from tarry.storage.postgres.messages import statements
from tarry.storage.postgres.messages.cursor import HEAD
from tarry.storage.postgres.messages.lease_tokens import new_poll_number
from tarry.storage.postgres.messages.statements import LeasedRow, ScanPosition
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


def test_a_consumer_with_fifty_thousand_leases_ahead_of_it_soon_polls_from_its_cursor(
    database: str, own: psycopg.Connection[Any]
) -> None:
    """All through the store: it learns by itself, and an expired lease behind its cursor is delivered all the same."""
    fill(own, AHEAD, held=AHEAD, priorities=1)
    store = PostgresStore(database, settings=StoreSettings(pool_size=1))
    store.run(store.messages.offer_many(QUEUE, [Draft(f"next{i:03d}", b"") for i in range(300)]))
    polled: list[str] = []
    dear: list[bool] = []
    for _ in range(100):
        polled += [lease.key for lease in store.run(store.messages.poll(QUEUE, 1, lambda data, _: data))]
        dear.append(store.messages._cursors[QUEUE, None].head_is_expensive)
    assert polled == [f"next{i:03d}" for i in range(100)]
    assert any(dear), "it never noticed what its polls cost"
    own.execute("update tarry.message set lease_until = clock_timestamp() where key = 'k000009'")
    keys_polled: list[str] = []
    while "k000009" not in keys_polled:
        keys_polled += [lease.key for lease in store.run(store.messages.poll(QUEUE, 1, lambda data, _: data))]
        assert len(keys_polled) <= 201, "the budget for the head was never spent"
    store.close()
