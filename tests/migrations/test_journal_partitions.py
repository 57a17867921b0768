"""The journal has one partition a day, and an overflow so that a missing one can never stop the queue."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql

import tarry
from tarry.core.clock import AuthorityClock
from tarry.core.errors import StoreUnavailable
from tarry.core.journal.events import EventKind
from tarry.core.maintenance.sweeping import Partitions
from tarry.core.messages.model import Draft
from tarry.core.settings import QueueSettings, RetrySettings, StoreSettings
from tarry.storage.postgres._sync.runner import drive
from tarry.storage.postgres._sync.store import PostgresStore
from tarry.storage.postgres.journal import statements as journal_statements
from tarry.storage.postgres.maintenance.role import PostgresMaintenance
from tarry.storage.postgres.messages.live_heads import LiveHeads
from tarry.testing import MutableClock
from tests.kit.settings import FOR_TESTS

DAY = date(2031, 5, 17)
NOON = datetime(2031, 5, 17, 12, tzinfo=UTC)
QUEUE = "journaled"


@pytest.fixture
def conn(database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database, autocommit=True) as conn:
        yield conn


@pytest.fixture
def store(database: str) -> Iterator[PostgresStore]:
    """At noon of a day that has no partition yet."""
    store = PostgresStore(database, clock=MutableClock(NOON), settings=FOR_TESTS)
    store.run(store.queues.create(QUEUE, QueueSettings(), exist_ok=False))
    yield store
    store.close()


def make(conn: psycopg.Connection[Any], day: date = DAY) -> bool:
    row = conn.execute("select tarry.journal_partition(%s)", (day,)).fetchone()
    assert row is not None
    return row[0]


def rows_per_table(conn: psycopg.Connection[Any]) -> dict[str, int]:
    """How many events of that day and the days around are in which table."""
    query = """
        select c.relname, count(*)::int from tarry.event e join pg_class c on c.oid = e.tableoid
        where at between '2031-05-01' and '2031-06-01' group by 1
    """
    return dict(conn.execute(query).fetchall())


def test_events_without_a_partition_go_to_the_overflow_and_move_when_there_is_one(
    conn: psycopg.Connection[Any], store: PostgresStore
) -> None:
    store.run(store.messages.offer(QUEUE, Draft("k", b"1")))
    before = store.run(store.journal.timeline(QUEUE, "k"))
    assert rows_per_table(conn) == {"event_overflow": 2}
    assert make(conn)
    assert rows_per_table(conn) == {"event_20310517": 2}
    assert store.run(store.journal.timeline(QUEUE, "k")) == before
    store.run(store.messages.offer(QUEUE, Draft("k", b"2")))
    assert rows_per_table(conn) == {"event_20310517": 3}
    assert [event.kind for event in store.run(store.journal.timeline(QUEUE, "k"))] == [
        EventKind.OFFERED,
        EventKind.UPDATED,
    ]


def test_only_events_of_that_day_move(conn: psycopg.Connection[Any]) -> None:
    """By the day of UTC, to the microsecond, whatever zone the session is in."""
    edges = [
        datetime(2031, 5, 16, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(2031, 5, 17, tzinfo=UTC),
        datetime(2031, 5, 17, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(2031, 5, 18, tzinfo=UTC),
    ]
    for at in edges:
        conn.execute("insert into tarry.event (kind, at, queue) values ('leased', %s, 1)", (at,))
    conn.execute("set timezone to 'Pacific/Kiritimati'")
    assert make(conn)
    query = "select at from tarry.event_20310517 order by at"
    assert [row[0] for row in conn.execute(query)] == edges[1:3]
    assert rows_per_table(conn) == {"event_20310517": 2, "event_overflow": 2}


def test_making_it_again_does_nothing(conn: psycopg.Connection[Any]) -> None:
    assert make(conn)
    assert not make(conn)
    assert make(conn, DAY + timedelta(days=1))


def test_a_new_partition_has_the_index_of_the_journal(conn: psycopg.Connection[Any]) -> None:
    make(conn)
    query = "select indexdef from pg_indexes where tablename = 'event_20310517'"
    ((index,),) = conn.execute(query).fetchall()
    assert "USING brin" in index
    assert "autosummarize='on'" in index


def test_concurrent_callers_make_a_partition_once(database: str) -> None:
    together = threading.Barrier(8)

    def run() -> bool:
        with psycopg.connect(database, autocommit=True) as conn:
            together.wait(30)
            return make(conn)

    with ThreadPoolExecutor(8) as pool:
        assert sorted(future.result(60) for future in [pool.submit(run) for _ in range(8)]) == [False] * 7 + [True]


@pytest.mark.parametrize("zone", ["UTC", "America/Sao_Paulo", "Asia/Beirut", "Pacific/Kiritimati"])
def test_the_days_ahead_are_those_of_utc(conn: psycopg.Connection[Any], zone: str) -> None:
    conn.execute("select set_config('timezone', %s, false)", (zone,))
    drive(conn, journal_statements.create_partitions(10).run())
    row = conn.execute("select (now() at time zone 'UTC')::date").fetchone()
    assert row is not None
    for ahead in range(11):
        assert not make(conn, row[0] + timedelta(days=ahead)), "it was there already"
    assert make(conn, row[0] + timedelta(days=11))


def test_a_partition_can_be_made_while_other_transactions_write_into_the_overflow(
    conn: psycopg.Connection[Any], database: str, store: PostgresStore
) -> None:
    """The very moment when it is needed: the partition of today is missing, and traffic flows."""
    stopping = threading.Event()

    def offer(thread: int) -> int:
        stored = 0
        while not stopping.is_set():
            store.run(store.messages.offer(QUEUE, Draft(f"{thread}-{stored}", b"")))
            stored += 1
        return stored

    with ThreadPoolExecutor(4) as pool:
        offers = [pool.submit(offer, thread) for thread in range(4)]
        try:
            while rows_per_table(conn).get("event_overflow", 0) < 100:
                assert not [future.result() for future in offers if future.done()]
            assert make(conn)
            while rows_per_table(conn)["event_20310517"] < 200:
                assert not [future.result() for future in offers if future.done()]
        finally:
            stopping.set()
        stored = sum(future.result(60) for future in offers)
    assert rows_per_table(conn) == {"event_20310517": stored + 1}, "one is the queue's own"


def test_an_open_transaction_that_wrote_into_the_overflow_is_waited_for_not_tripped_over(
    conn: psycopg.Connection[Any], database: str, store: PostgresStore
) -> None:
    waiting = (
        "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%journal_partition%'"
    )
    with psycopg.connect(database) as writer, ThreadPoolExecutor(1) as pool:
        writer.execute("insert into tarry.event (kind, at, queue) values ('leased', %s, 1)", (NOON,))
        made = pool.submit(make, conn)
        with psycopg.connect(database, autocommit=True) as watcher:
            while watcher.execute(waiting).fetchone() == (0,):
                assert not made.done()
        writer.commit()
        assert made.result(30)
    assert rows_per_table(conn) == {"event_20310517": 2}


def test_a_long_read_of_the_journal_does_not_block_a_start(
    conn: psycopg.Connection[Any], database: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An archive job may read for hours. A process that starts then does without the partition, which is not needed yet."""
    row = conn.execute(
        "select format('event_%s', to_char((now() at time zone 'UTC')::date + 7, 'YYYYMMDD'))"
    ).fetchone()
    assert row is not None
    # Missing already if the database was copied from one that was made before midnight.
    conn.execute(sql.SQL("drop table if exists tarry.{}").format(sql.Identifier(row[0])))
    with psycopg.connect(database) as reader, caplog.at_level("INFO", "tarry"):
        reader.execute("select count(*) from tarry.event")
        with tarry.connect(database) as app:
            app.queue(QUEUE).offer("k", 1)
    assert "the journal is being read" in caplog.text
    tarry.connect(database).close()
    assert conn.execute("select to_regclass(%s) is not null", (f"tarry.{row[0]}",)).fetchone() == (True,)


@pytest.fixture
def unattended(conn: psycopg.Connection[Any]) -> date:
    """A database whose partitions were not made ahead, with many events of today in the overflow. Today."""
    names = conn.execute("select relname from pg_class where relname ~ '^event_[0-9]{8}$' and relkind = 'r'").fetchall()
    for (name,) in names:
        conn.execute(sql.SQL("drop table tarry.{}").format(sql.Identifier(name)))
    conn.execute(
        "insert into tarry.event (kind, at, queue, key) "
        "select 'leased', clock_timestamp(), 1, repeat('k', 100) from generate_series(1, 20000)"
    )
    row = conn.execute("select (clock_timestamp() at time zone 'UTC')::date").fetchone()
    assert row is not None
    return row[0]


def partitions(conn: psycopg.Connection[Any]) -> list[str]:
    query = "select inhrelid::regclass::text from pg_inherits where inhparent = 'tarry.event'::regclass order by 1"
    return [row[0].removeprefix("tarry.") for row in conn.execute(query)]


def make_partitions(conn: psycopg.Connection[Any]) -> Partitions:
    """One step of the sweeper, for a week ahead."""
    role = PostgresMaintenance(AuthorityClock(), FOR_TESTS, LiveHeads())
    return drive(conn, role.make_partitions(7).start(True))


def test_partitions_are_made_beside_a_large_overflow_without_moving_or_reading_it_under_the_lock(
    conn: psycopg.Connection[Any], unattended: date
) -> None:
    notices: list[str] = []
    conn.execute("set client_min_messages = debug1")
    conn.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
    rows = "select count(*), min(ctid::text), max(ctid::text) from tarry.event_overflow"
    before = conn.execute(rows).fetchone()
    drive(conn, journal_statements.create_partitions(7).run())
    assert partitions(conn) == ["event_overflow"], "a connecting process does not wait for a large overflow"
    steps = [make_partitions(conn) for _ in range(3)]
    assert [step.more for step in steps] == [True, True, False]
    there = partitions(conn)
    assert f"event_{unattended:%Y%m%d}" not in there, "what the overflow has of today stays there"
    assert len(there) - 1 == steps[-1].made >= 6
    assert conn.execute(rows).fetchone() == before
    implied = 'updated partition constraint for default partition "event_overflow" is implied by existing constraints'
    assert notices.count(implied) == steps[-1].made, "ATTACH has read the overflow"
    assert conn.execute("select count(*) from tarry.journal_closed() where name is not null").fetchone() == (0,)
    after = make_partitions(conn)
    assert (after.made, after.more) == (0, False), "nothing is left to do until the days ahead are fewer"


def test_writers_do_not_wait_while_a_large_overflow_is_proven(
    conn: psycopg.Connection[Any], database: str, unattended: date
) -> None:
    assert make_partitions(conn).more
    with psycopg.connect(database) as writer:
        write = "insert into tarry.event (kind, at, queue) values ('leased', clock_timestamp(), 1)"
        writer.execute(write)
        conn.execute("begin")
        assert make_partitions(conn).more  # reads all of it
        held = "select count(*) from pg_locks where relation = 'tarry.event_overflow'::regclass and mode like '%%Exclusive' "
        stronger = held + "and pid = pg_backend_pid() and mode not in ('RowExclusiveLock', 'ShareUpdateExclusiveLock')"
        assert conn.execute(stronger).fetchone() == (0,)
        writer.execute(write)
        conn.execute("commit")


def test_an_overflow_that_was_left_closed_is_opened_before_its_days_begin(
    conn: psycopg.Connection[Any], unattended: date
) -> None:
    """The process that closed it was killed. Its days are near: an event of them would have no partition."""
    name = f"closed_{unattended:%Y%m%d}_{unattended:%Y%m%d}"
    check = sql.SQL(
        "alter table tarry.event_overflow add constraint {} check (at < '1999-01-01' or at >= '2999-01-01') not valid"
    )
    conn.execute(check.format(sql.Identifier(name)))
    make_partitions(conn)
    assert conn.execute("select name from tarry.journal_closed()").fetchone() in (None, (None,))


@pytest.fixture
def left_closed(conn: psycopg.Connection[Any], database: str, unattended: date) -> str:
    """A database with an expired lease whose overflow was closed to today by a process that died before it proved it."""
    with tarry.connect(database) as app:
        app.queue(QUEUE).offer("leased", 1)
        assert app.queue(QUEUE).try_poll() is not None
    conn.execute("update tarry.message set lease_until = clock_timestamp() - interval '1 minute'")
    check = sql.SQL("alter table tarry.event_overflow add constraint {} check (at < {}) not valid")
    name = f"closed_{unattended:%Y%m%d}_{unattended:%Y%m%d}"
    conn.execute(check.format(sql.Identifier(name), sql.Literal(datetime(2000, 1, 1, tzinfo=UTC))))
    return name


def test_a_day_that_begins_while_the_overflow_is_closed_to_it_is_explained(database: str, left_closed: str) -> None:
    settings = StoreSettings(connection_retry=RetrySettings(retries=1))
    with tarry.connect(database, settings=settings) as app, pytest.raises(StoreUnavailable) as raised:
        app.queue(QUEUE).offer("k", 1)
    assert left_closed in str(raised.value)
    assert "cannot be reached" not in str(raised.value)
    assert "tarry sweeper --once" in str(raised.value.hint)


@pytest.mark.parametrize("by", ["sweeper", "statement"])
def test_what_the_explanation_names_opens_the_overflow_again(
    conn: psycopg.Connection[Any], database: str, left_closed: str, by: str
) -> None:
    """Also while the sweeper has events of its own to write, such as the end of a lease."""

    async def sweep() -> None:
        settings = StoreSettings(connection_retry=RetrySettings(retries=1))
        async with tarry.connect_async(database, settings=settings) as app:
            assert (await app.sweeper().run_once()).expired == 1

    if by == "sweeper":
        asyncio.run(sweep())
    else:
        conn.execute("select tarry.journal_step(7)")
    with tarry.connect(database) as app:
        assert app.queue(QUEUE).offer("k", 1) is tarry.Outcome.CREATED
