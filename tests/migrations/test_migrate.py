"""Migrations are applied once each, by the first process, completely or not at all."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from tarry.core.errors import LockTimeout, SchemaMismatch
from tarry.storage.postgres import migrate
from tarry.storage.postgres.migrate import Migration
from tests.kit.servers import Server
from tests.kit.sleepers import until
from tests.kit.steps import TIMEOUT_S, in_background
from tests.migrations.catalogue import described
from tests.migrations.conftest import NewDatabase

ALL = migrate.known()


def connect(dsn: str) -> psycopg.Connection[Any]:
    return psycopg.connect(dsn, autocommit=True)


def applied(conn: psycopg.Connection[Any]) -> list[str]:
    if conn.execute("select to_regclass('tarry.migration')").fetchone() == (None,):
        return []
    return [row[0] for row in conn.execute("select name from tarry.migration order by number")]


def with_extra(monkeypatch: pytest.MonkeyPatch, *extra: Migration) -> None:
    monkeypatch.setattr(migrate, "known", lambda: (*ALL, *extra))


def extra(sql: Any, *, phase: str = "pre", number: int = 9001) -> Migration:
    return Migration(number, phase, f"{number}_{phase}_extra", sql)


def test_numbers_count_up_without_gaps_and_the_files_end_in_order() -> None:
    assert [migration.number for migration in ALL] == list(range(1, len(ALL) + 1))
    assert [migration.name for migration in ALL] == sorted(migration.name for migration in ALL)


@pytest.mark.parametrize("binaries", ["18", "16", "system"])
def test_an_empty_database_gets_them_all(servers: Any, new_database: NewDatabase, binaries: str) -> None:
    with connect(new_database(servers.get(binaries))) as conn:
        assert [migration.name for migration in migrate.pending(conn)] == [migration.name for migration in ALL]
        assert applied(conn) == [], "reading changed the database"
        assert migrate.migrate(conn) == list(ALL)
        assert applied(conn) == [migration.name for migration in ALL]
        assert migrate.pending(conn) == []


def test_a_second_time_changes_nothing(bare: str) -> None:
    with connect(bare) as conn:
        migrate.migrate(conn)
        before = described(conn), conn.execute("select * from tarry.migration order by 1").fetchall()
        assert migrate.migrate(conn) == []
        assert (described(conn), conn.execute("select * from tarry.migration order by 1").fetchall()) == before


def test_eight_threads_at_once_apply_each_once(bare: str) -> None:
    together = threading.Barrier(8)

    def run() -> list[Migration]:
        with connect(bare) as conn:
            together.wait(30)
            return migrate.migrate(conn)

    with ThreadPoolExecutor(8) as pool:
        done = [name for future in [pool.submit(run) for _ in range(8)] for name in future.result(60)]
    assert sorted(done, key=lambda migration: migration.number) == list(ALL)


_PROCESS = """
import sys, psycopg
from tarry.storage.postgres import migrate
with psycopg.connect(sys.argv[1], autocommit=True) as conn:
    print("ready", flush=True)
    sys.stdin.readline()
    print(len(migrate.migrate(conn)))
"""


def test_eight_processes_at_once_apply_each_once(bare: str) -> None:
    command = [sys.executable, "-c", _PROCESS, bare]
    processes = [subprocess.Popen(command, stdin=-1, stdout=-1, text=True) for _ in range(8)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    assert sum(int(process.communicate(timeout=60)[0]) for process in processes) == len(ALL)
    assert [process.returncode for process in processes] == [0] * 8


def test_a_migration_that_changed_after_it_was_applied_is_refused(bare: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with_extra(monkeypatch, extra("create table tarry.first ()"))
    with connect(bare) as conn:
        migrate.migrate(conn)
        with_extra(monkeypatch, extra("create table tarry.other ()"))
        for operation in (migrate.pending, migrate.migrate):
            with pytest.raises(
                SchemaMismatch, match="9001_pre_extra was applied to this database with another content"
            ):
                operation(conn)
        assert conn.execute("select to_regclass('tarry.other')").fetchone() == (None,)


def test_one_that_fails_half_way_leaves_nothing_of_itself_and_all_of_those_before(
    bare: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_extra(monkeypatch, extra("create table tarry.half (); insert into tarry.half select 1 / 0"))
    with connect(bare) as conn:
        with pytest.raises(psycopg.Error):
            migrate.migrate(conn)
        assert conn.info.transaction_status is psycopg.pq.TransactionStatus.IDLE
        assert applied(conn) == [migration.name for migration in ALL]
        assert conn.execute("select to_regclass('tarry.half')").fetchone() == (None,)
        with_extra(monkeypatch, extra("create table tarry.half ()"))
        assert [migration.name for migration in migrate.migrate(conn)] == ["9001_pre_extra"]


def test_post_migrations_wait_and_block_later_ones(bare: str, monkeypatch: pytest.MonkeyPatch) -> None:
    late = extra("create table tarry.late ()", phase="post"), extra("create table tarry.later ()", number=9002)
    with_extra(monkeypatch, *late)
    with connect(bare) as conn:
        assert migrate.migrate(conn, post=False) == list(ALL)
        assert migrate.pending(conn) == list(late)
        assert migrate.migrate(conn) == list(late)


def test_the_script_for_other_tools_makes_the_same_database(server: Server, bare: str, database: str) -> None:
    with connect(bare) as conn:
        conn.execute(migrate.script())  # pyright: ignore[reportArgumentType, reportCallIssue]
        assert migrate.pending(conn) == []
        by_script = described(conn)
        conn.execute("drop schema tarry cascade")
        migrate.migrate(conn)
        assert described(conn) == by_script


def test_migrating_does_not_wait_for_transactions_that_only_read_and_write_messages(bare: str) -> None:
    """Nothing pending: no table is locked, so an open transaction cannot hold a start-up back."""
    with connect(bare) as conn, psycopg.connect(bare) as busy:
        migrate.migrate(conn)
        busy.execute("lock table tarry.message, tarry.event, tarry.queue in access exclusive mode")
        conn.execute("set lock_timeout = '2s'")
        assert migrate.migrate(conn) == []


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrate, "LOCK_TIMEOUT_S", 0.2)
    monkeypatch.setattr(migrate, "PAUSES_S", (0.01, 0.01))


def test_a_migration_gives_way_to_an_open_reader_and_names_it(
    database: str, monkeypatch: pytest.MonkeyPatch, impatient: None
) -> None:
    with_extra(monkeypatch, extra("alter table tarry.message add column extra int"))
    with (
        psycopg.connect(database, application_name="a report") as reader,
        psycopg.connect(database, autocommit=True) as conn,
    ):
        reader.execute("select count(*) from tarry.message")
        with pytest.raises(LockTimeout, match="a report") as held:
            migrate.migrate(conn)
        for part in (
            f"pid {reader.info.backend_pid} ",
            "open for",
            "select count(*) from tarry.message",
            "9001_pre_extra",
        ):
            assert part in str(held.value)
        assert "9001_pre_extra" not in applied(conn)
        reader.rollback()
        assert [migration.number for migration in migrate.migrate(conn)] == [9001]


def test_other_statements_run_while_a_migration_waits_for_a_reader(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ALTER TABLE that waits stops every statement behind it: so it gives way again and again."""
    monkeypatch.setattr(migrate, "LOCK_TIMEOUT_S", 0.2)
    monkeypatch.setattr(migrate, "PAUSES_S", (0.2,) * 1_000)
    with_extra(monkeypatch, extra("alter table tarry.message add column extra int"))
    waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like 'alter table tarry.message%'"
    with (
        psycopg.connect(database) as reader,
        psycopg.connect(database, autocommit=True) as watcher,
        psycopg.connect(database, autocommit=True, options="-c statement_timeout=30s") as other,
        connect(database) as conn,
    ):
        reader.execute("select count(*) from tarry.message")
        with in_background(migrate.migrate, conn) as migrated:
            try:
                for _ in range(3):
                    until(lambda: watcher.execute(waits).fetchone() == (1,), "the migration does not wait")
                    other.execute("select count(*) from tarry.message")  # behind the ALTER TABLE, which gives way
                assert not migrated.done()
            finally:
                reader.rollback()
        assert [migration.number for migration in migrated.result(TIMEOUT_S)] == [9001]
