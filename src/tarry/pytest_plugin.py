"""Pytest fixtures, loaded through an entry point: an in-memory app, an app on a database per test, and their clock."""

from __future__ import annotations

import uuid
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

import pytest

if TYPE_CHECKING:  # Only tests that use the fixtures import Tarry.
    from tarry import App, AsyncApp
    from tarry.testing import MutableClock


@pytest.fixture
def tarry_clock() -> MutableClock:
    """The clock of the other fixtures. Only `tarry_clock.advance(…)` and `.set(…)` move it."""
    from tarry.testing import MutableClock

    return MutableClock()


@pytest.fixture
def tarry_app(tarry_clock: MutableClock) -> Iterator[App]:
    """An in-memory app."""
    from tarry.testing import memory_app

    with memory_app(tarry_clock) as app:
        yield app


@pytest.fixture
def tarry_async_app(tarry_app: App) -> AsyncApp:
    """`tarry_app` for async code, with the same messages."""
    from tarry.testing import awaiting

    return awaiting(tarry_app)


@pytest.fixture(scope="session")
def tarry_server() -> Iterator[str]:
    """The DSN of a server on which tests may create databases: embedded PostgreSQL. Override it to use another server."""
    from tarry.storage.postgres import embedded

    server = embedded.start()
    yield server.dsn
    server.close()


@pytest.fixture(scope="session")
def tarry_template(tarry_server: str) -> Iterator[str]:
    """The DSN of a database with Tarry's tables, which `tarry_dsn` copies. Override it to add your own tables."""
    from tarry.app import connect

    with _database(tarry_server) as dsn:
        connect(dsn, migrate=True).close()
        yield dsn


@pytest.fixture
def tarry_dsn(tarry_server: str, tarry_template: str) -> Iterator[str]:
    """The DSN of a new database."""
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
            # A URL, because SQLAlchemy accepts no keyword strings.
            options = {key: value for key, value in conninfo_to_dict(server).items() if key != "dbname"}
            yield f"postgresql:///{name}?{urlencode(options, quote_via=quote)}"  # libpq does not decode + as a space
        finally:
            conn.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))
