"""tarry db and tarry doctor: on databases that are fit, unfit, empty, or not there at all."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tarry import admin
from tests.edges.conftest import Run
from tests.storage.postgres.embedded.embedded_kit import await_stopped

NOWHERE = "postgresql://user:s3cret@127.0.0.1:1/nowhere"


@pytest.fixture
def empty_database(database: str) -> Iterator[str]:
    """A database that Tarry has never seen."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create database never_seen template template0")
    yield make_conninfo(database, dbname="never_seen")
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("drop database never_seen with (force)")


def execute(dsn: str, *statements: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        for statement in statements:
            conn.execute(statement.encode())


def checks(ran: Any) -> dict[str, Any]:
    return {check["check"]: check for check in ran.data["checks"]}


def test_a_new_database_is_migrated_once(run: Run, empty_database: str) -> None:
    pending = run("db", "status", "--dsn", empty_database)
    assert pending.code == 7
    assert "pending" in pending.out
    assert "tarry db migrate" in pending.err
    done = run("db", "migrate", "--dsn", empty_database)
    assert done.code == 0
    assert "0001_pre_initial" in done.out
    again = run("db", "migrate", "--dsn", empty_database, "--json")
    assert again.data == {"schema": "tarry.db.migrate/1", "applied": []}
    status = run("db", "status", "--dsn", empty_database, "--json")
    assert status.code == 0
    assert status.data["up_to_date"] is True
    assert {migration["state"] for migration in status.data["migrations"]} == {"applied"}
    assert run("db", "status", "--dsn", empty_database, "-o", "jsonl").lines[0]["schema"] == "tarry.db.status/1"


def test_only_compatible_migrations_are_applied_on_request(run: Run, empty_database: str) -> None:
    applied = run("db", "migrate", "--pre-only", "--dsn", empty_database, "--json").data["applied"]
    assert applied
    assert {migration["phase"] for migration in applied} == {"pre"}


def test_a_database_of_another_version_fails_the_check(run: Run, database: str) -> None:
    execute(database, "insert into tarry.migration (number, name, checksum) values (9999, '9999_post_future', 'x')")
    ran = run("db", "status", "--dsn", database, "--json")
    assert ran.code == 7
    assert ran.data["migrations"][-1]["state"] == "unknown"
    execute(database, "update tarry.migration set checksum = 'x' where number = 1")
    assert run("db", "status", "--dsn", database, "--json").data["migrations"][0]["state"] == "changed"
    doctor = run("doctor", "--dsn", database, "--json")
    assert "another version" in checks(doctor)["migrations"]["hint"]
    refused = run("db", "migrate", "--dsn", database)
    assert refused.code == 1
    assert "another content" in refused.err


def test_the_schema_is_printed_without_a_database(run: Run, monkeypatch: pytest.MonkeyPatch, database: str) -> None:
    monkeypatch.setenv("TARRY_DSN", NOWHERE)
    ran = run("db", "sql")
    assert ran.code == 0
    assert "create table tarry.message" in ran.out
    assert ran.err == ""
    assert run("db", "sql", "--json").data == {"schema": "tarry.db.sql/1", "sql": ran.out}


def test_the_printed_schema_is_the_schema(run: Run, empty_database: str) -> None:
    execute(empty_database, run("db", "sql").out)
    assert run("db", "status", "--dsn", empty_database).code == 0


@pytest.mark.parametrize("command", ["list", "migrate", "status"])
def test_a_database_that_cannot_be_reached_has_a_code_of_its_own(run: Run, command: str) -> None:
    group = "queue" if command == "list" else "db"
    ran = run(group, command, "--dsn", NOWHERE)
    assert ran.code == 5
    assert ran.err.startswith("error: the database cannot be reached")
    assert len(ran.err.splitlines()) == 2
    assert "s3cret" not in ran.err
    assert run(group, command, "--dsn", NOWHERE, "--json").error["exit_code"] == 5


def test_a_database_without_tables_is_reported_with_the_command_to_run(run: Run, empty_database: str) -> None:
    ran = run("queue", "list", "--dsn", empty_database)
    assert ran.code == 1
    assert "hint: run: tarry db migrate" in ran.err


@pytest.mark.parametrize("dsn", ["postgres:s3cret@host", "postgresql://u:s3cret@[host/x", "host=h password"], ids=repr)
def test_a_dsn_that_cannot_be_one_is_bad_input_and_not_repeated(run: Run, dsn: str) -> None:
    for command in (["queue", "list"], ["doctor"], ["db", "migrate"], ["db", "status"]):
        ran = run(*command, "--dsn", dsn, "--debug")
        assert ran.code == 2
        assert "s3cret" not in ran.err + ran.out


def test_a_dsn_from_the_environment_is_checked_too(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TARRY_DSN", "postgres:s3cret@host")
    assert run("queue", "list").code == 2


def test_a_fit_database_passes_every_check(run: Run, database: str) -> None:
    database = make_conninfo(database, options="-csearch_path=public")
    ran = run("doctor", "--dsn", database)
    assert ran.code == 0
    assert "failed" not in ran.out
    assert "all checks passed" in ran.err
    data = run("doctor", "--dsn", database, "--json")
    assert data.data["schema"] == "tarry.doctor/1"
    assert data.data["ok"] is True
    results = checks(data)
    assert results["pooler"]["found"] == "none, direct connection"
    assert {"clock skew", "journal partitions", "journal overflow", "privileges", "migrations"} <= results.keys()
    assert {"time zones here", "time zones there", "server version", "fsync"} <= results.keys()
    assert all(check["hint"] is None for check in results.values())


def test_the_database_is_named_without_its_password(run: Run, database: str) -> None:
    ran = run("doctor", "--dsn", make_conninfo(database, password="s3cret"), "--json")
    assert "password=***" in checks(ran)["database"]["found"]
    assert str(conninfo_to_dict(database)["dbname"]) in checks(ran)["database"]["found"]
    assert "s3cret" not in ran.out + ran.err


def test_a_database_that_is_away_is_a_finding(run: Run) -> None:
    ran = run("doctor", "--dsn", NOWHERE, "--json")
    assert ran.code == 7
    assert ran.data["ok"] is False
    assert checks(ran)["connection"]["ok"] is False
    assert "s3cret" not in ran.out
    table = run("doctor", "--dsn", NOWHERE)
    assert table.code == 7
    assert "failed" in table.out
    assert "s3cret" not in table.out


def test_an_empty_database_is_sent_to_be_migrated(run: Run, empty_database: str) -> None:
    ran = run("doctor", "--dsn", empty_database, "--json")
    assert ran.code == 7
    assert checks(ran)["migrations"]["hint"] == "run: tarry db migrate"


def test_a_database_that_would_lose_messages_fails(run: Run, database: str) -> None:
    name = conninfo_to_dict(database)["dbname"]
    execute(database, f"alter database {name} set synchronous_commit = off")
    ran = run("doctor", "--dsn", database, "--json")
    assert ran.code == 7
    assert checks(ran)["synchronous_commit"]["ok"] is False
    assert run("queue", "list", "--dsn", database).code == 1


def test_missing_partitions_and_an_overflow_are_found(run: Run, database: str) -> None:
    execute(
        database,
        "do $$ declare part regclass; begin for part in select inhrelid from pg_inherits where inhparent = "
        "'tarry.event'::regclass and inhrelid <> 'tarry.event_overflow'::regclass loop "
        "execute format('drop table %s', part); end loop; end $$",
        "insert into tarry.event (at, kind, queue) values (now(), 'queue_created', 1)",
    )
    results = checks(run("doctor", "--dsn", database, "--json"))
    assert results["journal partitions"]["ok"] is False
    assert results["journal overflow"]["ok"] is False
    assert run("db", "migrate", "--dsn", database).code == 0
    assert run("doctor", "--dsn", database).code == 0


@pytest.fixture
def weak(database: str) -> Iterator[str]:
    """The database as a role sees it that may only log in."""
    execute(database, "create role weak login")
    yield make_conninfo(database, user="weak")
    execute(database, "drop owned by weak", "drop role weak")


def test_a_role_without_rights_is_found(run: Run, database: str, weak: str) -> None:
    def privileges() -> Any:
        return checks(run("doctor", "--dsn", weak, "--json"))["privileges"]

    assert "permission denied for schema tarry" in privileges()["found"]
    assert "grant" in privileges()["hint"]
    execute(database, "grant usage on schema tarry to weak")
    execute(database, "grant select on tarry.migration, tarry.event_overflow to weak")
    assert privileges()["found"].startswith("weak may not use dead_letter, event, event_seq, message, queue")
    execute(database, "grant all on all tables in schema tarry to weak")
    assert privileges()["found"] == "weak may not use event_seq, version_seq"
    assert privileges()["ok"] is False
    execute(database, "grant usage on all sequences in schema tarry to weak")
    assert privileges()["ok"] is True
    assert "not create partitions" in privileges()["found"]
    assert run("offer", "orders", "1", "--dsn", weak).code == 0


def test_a_role_without_rights_is_reported_by_every_command(run: Run, empty_database: str, weak: str) -> None:
    ran = run("queue", "list", "--dsn", weak)
    assert ran.code == 4
    assert ran.err.startswith("error: this role lacks a right: permission denied for schema tarry")
    assert "hint: see what it lacks: tarry doctor" in ran.err
    ran = run("db", "migrate", "--dsn", make_conninfo(empty_database, user="weak"))
    assert ran.code == 4
    assert ran.err.startswith("error: this role may not change the schema: permission denied for database")
    assert "grant create on database" in ran.err


def test_a_clock_that_is_far_off_is_found(run: Run, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "LARGEST_SKEW", timedelta(days=-1))
    results = checks(run("doctor", "--dsn", database, "--json"))
    assert results["clock skew"]["ok"] is False
    assert "NTP" in results["clock skew"]["hint"]


def test_a_pooler_shows_by_another_pid(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with psycopg.connect(database) as conn:
        monkeypatch.setattr(psycopg.ConnectionInfo, "backend_pid", -1)
        assert "through a pooler" in admin._pooler(conn).actual  # pyright: ignore[reportPrivateUsage]


def test_an_embedded_server_that_will_not_start_is_a_finding(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TARRY_HOME", str(tmp_path / "file"))
    ran = run("doctor", "--json")
    assert ran.code == 7
    assert checks(ran)["database"]["ok"] is False
    assert run("queue", "list").code == 5


def test_without_any_database_named_there_is_an_embedded_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    # Not in pytest's own directory: PostgreSQL may run under another account, and the path of a socket must be short.
    directory = Path(tempfile.mkdtemp(prefix="tarry-cli-", dir="/tmp"))
    directory.chmod(0o755)
    monkeypatch.setenv("TARRY_HOME", str(directory))
    try:
        first, *others = run("doctor").err.splitlines()
        assert first.endswith(f"an embedded one is created in {directory / 'postgres-18'}")
        assert "database was named" not in "".join(others)
        fresh = run("doctor", "--json")
        assert (fresh.code, checks(fresh)["migrations"]["found"]) == (0, "none yet: the first use creates the tables")
        sent = run("offer", "hello", '{"hi": "there"}')
        assert (sent.code, "database" in sent.err) == (0, False), "only once"
        assert "database" not in run("pipeline", "status").err
        assert run("poll", "hello", "--json").data["messages"][0]["payload"] == {"hi": "there"}
        assert run("db", "migrate", "--json").data["applied"] == []
        doctor = run("doctor", "--json")
        assert doctor.code == 0
        assert checks(doctor)["database"]["found"].startswith("embedded PostgreSQL")
    finally:
        for home in directory.iterdir():
            await_stopped(home)
        shutil.rmtree(directory)


def test_a_role_whose_tables_would_be_created_among_those_of_tarry_is_warned(run: Run, database: str) -> None:
    """The role of this server is named tarry, so that its `"$user"` is the schema of Tarry."""
    warned = checks(run("doctor", "--dsn", database, "--json"))["search path"]
    assert (warned["ok"], warned["warning"], "alter role tarry set search_path" in warned["hint"]) == (True, True, True)
    assert "created among those of Tarry" in run("db", "migrate", "--dsn", database).err
    named = make_conninfo(database, options="-csearch_path=tarry")
    assert "PGOPTIONS" in checks(run("doctor", "--dsn", named, "--json"))["search path"]["hint"]
    apart = make_conninfo(database, options="-csearch_path=public")
    assert checks(run("doctor", "--dsn", apart, "--json"))["search path"]["warning"] is False
    assert "among" not in run("db", "migrate", "--dsn", apart).err
