"""Fixtures for pytest, loaded by an entry point: an app in memory, one on a database per test, and their clock."""

from __future__ import annotations

import uuid
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

import pytest

if TYPE_CHECKING:  # Tarry is imported by the tests that use it, and by no others.
    from tarry import App, AsyncApp
    from tarry.testing import MutableClock


@pytest.fixture
def tarry_clock() -> MutableClock:
    """The clock of the other fixtures. It moves by `tarry_clock.advance(…)` only."""
    from tarry.testing import MutableClock

    return MutableClock()


@pytest.fixture
def tarry_app(tarry_clock: MutableClock) -> Iterator[App]:
    """An app in memory."""
    from tarry.testing import memory_app

    with memory_app(tarry_clock) as app:
        yield app


@pytest.fixture
def tarry_async_app(tarry_app: App) -> AsyncApp:
    """`tarry_app` for async code: the same messages."""
    from tarry.testing import awaiting

    return awaiting(tarry_app)


@pytest.fixture(scope="session")
def tarry_server() -> Iterator[str]:
    """The address of a PostgreSQL server on which tests may create databases: the embedded one. Override it for another."""
    from tarry.storage.postgres import embedded

    server = embedded.start()
    yield server.dsn
    server.close()


@pytest.fixture(scope="session")
def tarry_template(tarry_server: str) -> Iterator[str]:
    """The address of a database with Tarry's tables, which `tarry_dsn` copies. Override it to add your own tables."""
    from tarry.app import connect

    with _database(tarry_server) as dsn:
        connect(dsn, migrate=True).close()
        yield dsn


@pytest.fixture
def tarry_dsn(tarry_server: str, tarry_template: str) -> Iterator[str]:
    """The address of a new database."""
    with _database(tarry_server, tarry_template) as dsn:
        yield dsn


@pytest.fixture
def tarry_postgres_app(tarry_dsn: str, tarry_clock: MutableClock) -> Iterator[App]:
    """An app on `tarry_dsn`, for code that uses `conn=`."""
    from tarry.app import connect

    with connect(tarry_dsn, clock=tarry_clock) as app:
        yield app


@contextmanager
def _database(server: str, template: str | None = None) -> Generator[str]:
    import psycopg
    from psycopg import sql
    from psycopg.conninfo import conninfo_to_dict

    name = f"tarry_test_{uuid.uuid4().hex}"
    source = sql.Identifier(str(conninfo_to_dict(template)["dbname"]) if template else "template0")
    with psycopg.connect(server, autocommit=True) as conn:
        conn.execute(sql.SQL("create database {} template {} encoding 'UTF8'").format(sql.Identifier(name), source))
        try:
            # As an address, which SQLAlchemy reads, too.
            options = {key: value for key, value in conninfo_to_dict(server).items() if key != "dbname"}
            yield f"postgresql:///{name}?{urlencode(options, quote_via=quote)}"  # libpq reads no + as a space
        finally:
            conn.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))
