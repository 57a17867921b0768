"""What a lease costs and what it can never do, whatever the planner thinks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import psycopg
import pytest

from tarry.core.messages.model import Draft, LeaseId, PollOptions
from tarry.core.messages.outcomes import Outcome
from tarry.core.settings import QueueSettings, StoreSettings
from tarry.storage.postgres._sync.runner import drive
from tarry.storage.postgres._sync.store import PostgresStore
from tarry.storage.postgres.arrays import register_array_dumpers
from tarry.storage.postgres.connections import KEYWORDS, configure
from tarry.storage.postgres.messages import operations as ops
from tarry.storage.postgres.messages import statements
from tarry.storage.postgres.messages.cursor import HEAD
from tarry.storage.postgres.messages.lease_tokens import lease_tokens, new_poll_number
from tarry.storage.postgres.queues import statements as queue_statements
from tarry.storage.postgres.statement import Statement
from tests.kit.servers import Servers
from tests.kit.settings import FOR_TESTS

QUEUE = "planned"
# Each takes away what the planner would choose, and what it would choose instead.
FORCED = {
    "no index": ("enable_indexscan", "enable_indexonlyscan", "enable_bitmapscan"),
    "no nested loop": ("enable_nestloop",),
    "nested loops only": ("enable_hashjoin", "enable_mergejoin"),
    "merge joins only": ("enable_hashjoin", "enable_nestloop"),
    "no way by ctid": ("enable_tidscan",),
    "no sequential scan": ("enable_seqscan",),
    "nothing kept in memory": ("enable_material", "enable_memoize", "enable_sort", "enable_incremental_sort"),
    "only bitmaps": ("enable_indexscan", "enable_indexonlyscan", "enable_seqscan", "enable_tidscan"),
}


@pytest.fixture
def own(database: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection as our pool makes them, on a database with one queue."""
    with psycopg.connect(database, **KEYWORDS) as conn:
        configure(conn)
        drive(conn, queue_statements.create(QUEUE, QueueSettings(), None).run())
        yield conn


@pytest.fixture
def caller(database: str, own: psycopg.Connection[Any]) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database) as conn:
        register_array_dumpers(conn.adapters)
        yield conn


def lease(
    n: int, *, type: str | None = None, consumer: str | None = None, durable: bool = False, number: int = 7
) -> Statement[list[statements.LeasedRow]]:
    options = PollOptions(type=type, consumer=consumer)
    return statements.poll(QUEUE, n, HEAD, options, number=number, durable=durable, now=None)


def leased(
    conn: psycopg.Connection[Any], n: int, *, type: str | None = None, consumer: str | None = None
) -> list[LeaseId]:
    """In the order of the keys, in which they are settled."""
    number = new_poll_number()
    rows = drive(conn, lease(n, type=type, consumer=consumer, number=number).run())
    return sorted(LeaseId(row.key, lease_tokens(number, [row.tid])[0]) for row in rows)


def offer(conn: psycopg.Connection[Any], n: int, *, type: str | None = None, size: int = 10) -> None:
    drafts = [Draft(f"k{i:05d}", b"x" * size, priority=i % 3, type=type) for i in range(n)]
    drive(conn, ops.offer_many(QUEUE, drafts, None))


@pytest.mark.parametrize("cache_mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("forced", FORCED)
@pytest.mark.parametrize("type", [None, "typed"])
def test_no_plan_leases_more_than_the_limit_or_out_of_order(
    own: psycopg.Connection[Any], caller: psycopg.Connection[Any], type: str | None, forced: str, cache_mode: str
) -> None:
    offer(own, 60, type=type)
    caller.prepare_threshold = 0
    for setting in FORCED[forced]:
        caller.execute("select set_config(%s, 'off', false)", (setting,))
    caller.execute("select set_config('plan_cache_mode', %s, false)", (cache_mode,))
    for round_ in range(12):
        rows = drive(caller, lease(5, type=type, number=round_).run())
        assert sorted((2 - row.priority, row.key) for row in rows) == [
            (i // 20, f"k{i % 20 * 3 + 2 - i // 20:05d}") for i in range(5 * round_, 5 * round_ + 5)
        ]
    assert drive(caller, lease(5, type=type).run()) == []
    assert caller.execute("select count(*), count(distinct token) from tarry.message").fetchone() == (60, 12)


@pytest.mark.parametrize("forced", FORCED)
def test_no_plan_settles_anything_but_what_is_held(
    own: psycopg.Connection[Any], caller: psycopg.Connection[Any], forced: str
) -> None:
    offer(own, 30)
    earlier = leased(own, 30)
    drive(own, statements.release(QUEUE, earlier, None).run())
    first, second = leased(own, 15), leased(own, 15)
    lease_ids = sorted(first + second)
    stale = [
        *earlier,
        *(LeaseId(lease_id.key, other.token) for lease_id, other in zip(first, second, strict=True)),
        *(LeaseId(lease_id.key, other.token) for lease_id, other in zip(second, first, strict=True)),
    ]
    caller.prepare_threshold = 0
    for setting in FORCED[forced]:
        caller.execute("select set_config(%s, 'off', false)", (setting,))
    nothing, everything = statements.SettledKeys(frozenset()), statements.SettledKeys(None)
    for make in (statements.ack, partial(statements.ack, by_key=True), statements.release):
        assert drive(caller, make(QUEUE, stale, None).run()) == nothing
        assert {drive(caller, make(QUEUE, [lease_id], None).run()) for lease_id in stale} == {nothing}
    assert drive(caller, statements.touch(QUEUE, stale, None, None).run()) == nothing
    assert (
        drive(caller, statements.nack(QUEUE, [statements.Failed(lease_id) for lease_id in stale], None).run())
        == nothing
    )
    assert drive(caller, statements.ack(QUEUE, lease_ids[:4], None).run()) == everything
    assert drive(caller, statements.ack(QUEUE, lease_ids[4:5], None).run()) == everything
    assert drive(caller, statements.touch(QUEUE, lease_ids[5:], None, None).run()) == everything
    assert drive(caller, statements.ack(QUEUE, lease_ids[5:], None).run()) == nothing, "they are in another place now"
    assert drive(caller, statements.ack(QUEUE, lease_ids[5:10], None, by_key=True).run()) == everything
    assert drive(caller, statements.release(QUEUE, lease_ids[10:20], None).run()) == everything
    assert (
        drive(caller, statements.nack(QUEUE, [statements.Failed(lease_id) for lease_id in lease_ids[20:]], None).run())
        == everything
    )
    count = "select count(*), count(token) from tarry.message"
    assert caller.execute(count).fetchone() == (20, 0)


def test_a_lease_of_ours_does_not_wait_for_the_disk_and_leaves_no_setting_behind(
    own: psycopg.Connection[Any],
) -> None:
    offer(own, 1)
    with own.transaction():
        assert len(drive(own, lease(1).run())) == 1
        assert shown(own) == "off"
    assert shown(own) == "on"
    offer(own, 50)
    behind = "select pg_current_wal_flush_lsn() < pg_current_wal_insert_lsn()"
    waited = [drive(own, lease(1).run()) and own.execute(behind).fetchone() for _ in range(50)]
    assert (True,) in waited, "every one of 50 leases was on disk at once"


@pytest.mark.parametrize("chosen", ["on", "local", "remote_write", "off"])
def test_a_lease_in_the_callers_transaction_has_the_durability_of_the_caller(
    database: str, own: psycopg.Connection[Any], caller: psycopg.Connection[Any], chosen: str
) -> None:
    offer(own, 1)
    caller.execute("select set_config('synchronous_commit', %s, true)", (chosen,))
    store = PostgresStore(database, settings=FOR_TESTS)
    assert len(store.run(store.messages.poll(QUEUE, 1, lambda data, _: data), conn=caller)) == 1
    assert shown(caller) == chosen
    caller.commit()
    assert shown(caller) == "on"
    store.close()


def test_a_lease_in_the_callers_transaction_is_on_disk_when_it_is_committed(
    own: psycopg.Connection[Any], caller: psycopg.Connection[Any]
) -> None:
    offer(own, 20)
    for _ in range(20):
        drive(caller, lease(1, durable=True).run())
        written = caller.execute("select pg_current_wal_insert_lsn()").fetchone()
        caller.commit()
        assert written is not None
        assert caller.execute("select pg_current_wal_flush_lsn() >= %s", written).fetchone() == (True,)


def test_after_a_lease_the_same_connection_waits_for_the_disk_again(database: str) -> None:
    """One pool, one connection: what the lease relaxed must not last until the ack."""
    store = PostgresStore(database, settings=StoreSettings(pool_size=1))
    for i in range(3):
        assert store.run(store.messages.offer(QUEUE, Draft(f"k{i}", b""))) is Outcome.CREATED
        assert len(store.run(store.messages.poll(QUEUE, 1, lambda data, _: data))) == 1
        with store._pool.connection() as conn:
            assert shown(conn) == "on"
    store.close()


@pytest.mark.parametrize("binaries", ["18", "system"])
@pytest.mark.parametrize(
    ("consumer", "size"),
    [
        (None, 100),
        (None, 500),
        ("worker-17.example:12345", 500),
        ("worker-17.example:12345", 0),
        ("orders-worker-7d9c6b5f4c-x2x9p.eu-west:1", 40),
    ],
)
def test_polls_change_no_index(servers: Servers, binaries: str, consumer: str | None, size: int) -> None:
    """Every update of a lease and of a release is HOT, also when the same message is leased again and again."""
    server = servers.get(binaries)
    dsn = server.new_database()
    with psycopg.connect(dsn, **KEYWORDS) as conn:
        configure(conn)
        drive(conn, queue_statements.create(QUEUE, QueueSettings(), None).run())
        offer(conn, 1_000, type="typed", size=size)
        for type in (None, "typed", None):
            lease_ids = [lease_id for _ in range(10) for lease_id in leased(conn, 100, type=type, consumer=consumer)]
            drive(conn, statements.release(QUEUE, sorted(lease_ids), None).run())
        counted = updates(conn)
    server.drop_database(dsn)
    assert counted == (6_000, 6_000)


def updates(conn: psycopg.Connection[Any]) -> tuple[int, int]:
    """All of them and the HOT ones, as counted by the one session that made them."""
    conn.execute("select pg_stat_force_next_flush()")
    conn.execute("select 1")  # numbers are handed over between statements
    query = "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relid = 'tarry.message'::regclass"
    row = conn.execute(query).fetchone()
    assert row is not None
    return row


def shown(conn: psycopg.Connection[Any]) -> str:
    row = conn.execute("show synchronous_commit").fetchone()
    assert row is not None
    return row[0]
