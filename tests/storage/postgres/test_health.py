"""A database that would lose or garble messages is refused before anything is put into it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

import tarry
from tarry.core.errors import InvalidInput, SchemaMismatch, StoreUnavailable, UnsafeDatabase
from tarry.core.messages.model import Draft
from tarry.storage.postgres import health
from tarry.storage.postgres._sync.store import PostgresStore
from tests.kit.servers import Server

_NUMBERS = count(1)
Create = Callable[[LiteralString], str]


@pytest.fixture
def create(server: Server) -> Iterator[Create]:
    """A database without tables, made with the options given."""
    made: list[str] = []

    def run(command: LiteralString) -> None:
        with psycopg.connect(server.shared, autocommit=True) as conn:
            conn.execute(command)

    def created(options: LiteralString = "") -> str:
        name = f"odd{next(_NUMBERS)}"
        command = sql.SQL("create database {} template template0 {}").format(sql.Identifier(name), sql.SQL(options))
        with psycopg.connect(server.shared, autocommit=True) as conn:
            conn.execute(command)
        made.append(make_conninfo(server.shared, dbname=name))
        return made[-1]

    yield created
    for dsn in made:
        server.drop_database(dsn)


def alter(dsn: str, setting: LiteralString) -> None:
    name = sql.Identifier(str(conninfo_to_dict(dsn)["dbname"]))
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(sql.SQL("alter database {} set {}").format(name, sql.SQL(setting)))


def has_tables(dsn: str) -> bool:
    with psycopg.connect(dsn) as conn:
        return conn.execute("select from pg_namespace where nspname = 'tarry'").fetchone() is not None


@pytest.mark.parametrize("migrate", [False, True])
def test_a_database_without_an_encoding_is_refused_and_left_empty(create: Create, migrate: bool) -> None:
    dsn = create("encoding 'SQL_ASCII' locale_provider 'libc' locale 'C'")
    with pytest.raises(UnsafeDatabase, match=r"encoding is SQL_ASCII") as raised:
        tarry.connect(dsn, migrate=migrate)
    assert raised.value.hint is not None
    assert raised.value.hint.startswith("create the database with encoding UTF8")
    assert not has_tables(dsn)


@pytest.mark.parametrize("migrate", [False, True])
def test_a_database_that_does_not_wait_for_its_disk_is_refused(create: Create, migrate: bool) -> None:
    dsn = create("encoding 'UTF8'")
    alter(dsn, "synchronous_commit = off")
    with pytest.raises(UnsafeDatabase, match=r"synchronous_commit is off") as raised:
        tarry.connect(dsn, migrate=migrate)
    assert raised.value.hint is not None
    assert "allow_unsafe=True" in raised.value.hint
    assert not has_tables(dsn)


def test_allow_unsafe_accepts_an_asynchronous_commit(create: Create) -> None:
    dsn = create("encoding 'UTF8'")
    alter(dsn, "synchronous_commit = off")
    with tarry.connect(dsn, migrate=True, allow_unsafe=True) as app:
        app.queue("risky").offer("k", 1)
        assert app.queue("risky").contains("k")


@pytest.mark.parametrize("level", ["on", "local", "remote_write", "remote_apply"])
def test_every_way_to_wait_for_the_disk_is_good_enough(create: Create, level: LiteralString) -> None:
    dsn = create("encoding 'UTF8'")
    alter(dsn, "synchronous_commit = " + level)
    tarry.connect(dsn, migrate=True).close()


def test_missing_migrations_are_named_with_the_way_to_apply_them(create: Create) -> None:
    dsn = create("encoding 'UTF8'")
    with pytest.raises(SchemaMismatch, match="the first is 0001_pre_initial") as raised:
        tarry.connect(dsn)
    assert raised.value.hint is not None
    assert "tarry db migrate" in raised.value.hint
    assert not has_tables(dsn)
    tarry.connect(dsn, migrate=True).close()
    tarry.connect(dsn).close()


def test_a_verb_without_its_tables_raises_a_clear_error(create: Create) -> None:
    store = PostgresStore(create("encoding 'UTF8'"))
    with pytest.raises(SchemaMismatch, match="does not have Tarry's tables") as raised:
        store.run(store.messages.offer("q", Draft("k", b"")))
    assert raised.value.hint is not None
    store.close()


def test_a_missing_database_is_reported_as_unreachable(server: Server) -> None:
    with pytest.raises(StoreUnavailable, match='database "nowhere" does not exist') as raised:
        tarry.connect(make_conninfo(server.shared, dbname="nowhere"))
    assert raised.value.hint is not None


def test_every_check_reports_its_finding(database: str) -> None:
    with psycopg.connect(database) as conn:
        results = {finding.check: (finding.ok, finding.actual) for finding in health.findings(conn)}
    assert results.pop("server version")[0]
    assert results == {
        "encoding": (True, "UTF8"),
        "fsync": (True, "on"),
        "full_page_writes": (True, "on"),
        "synchronous_commit": (True, "on"),
        "primary": (True, "primary"),
    }


def applied_by_a_newer_one(dsn: str, name: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("insert into tarry.migration (number, name, checksum) values (%s, %s, 'x')", (int(name[:4]), name))


def test_a_database_that_a_newer_version_has_finished_with_is_left_alone(database: str) -> None:
    applied_by_a_newer_one(database, "9998_post_another_shape")
    with pytest.raises(
        SchemaMismatch, match=r"newer version of Tarry, which has applied 9998_post_another_shape"
    ) as raised:
        tarry.connect(database)
    assert raised.value.hint is not None
    assert raised.value.hint.startswith("use that version")


def test_during_a_rolling_deploy_the_old_version_goes_on(database: str) -> None:
    applied_by_a_newer_one(database, "9998_pre_one_more_column")
    with tarry.connect(database) as app:
        app.queue("orders").offer("k", 1)
        assert app.queue("orders").contains("k")


@pytest.mark.parametrize("dsn", [b"host=here", 5, "no address"], ids=repr)
def test_what_cannot_be_an_address_is_bad_input(dsn: Any) -> None:
    with pytest.raises(InvalidInput, match="not an address"):
        tarry.connect(dsn)
