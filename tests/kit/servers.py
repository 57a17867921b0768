"""PostgreSQL servers of our own, started when first used and stopped with the session; each worker has its own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from itertools import count
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tarry.app import prepare
from tarry.storage.postgres.embedded import EmbeddedError, EmbeddedSettings, start
from tarry.storage.postgres.embedded.home import find_binaries
from tarry.storage.postgres.health import OLDEST_SERVER
from tests.kit.directories import new_directory
from tests.storage.postgres.embedded.embedded_kit import await_stopped

ALL = ("18", "16", "system")
_TEMPLATE = "migrated"


def oldest() -> str:
    """The oldest server here that Tarry supports: the system's if it has that major version, else the wheel's 16."""
    try:
        installed = find_binaries("system", os.environ.get("PATH", "")).major
    except EmbeddedError:
        return "16"
    return "system" if installed == OLDEST_SERVER // 10_000 else "16"


class Server:
    """One PostgreSQL with a migrated template, from which databases are made in a few milliseconds."""

    def __init__(self, binaries: str) -> None:
        self._directory = new_directory("tarry-kit-")
        try:
            self._server = start(EmbeddedSettings(data_dir=self._directory / "home", binaries=binaries))
        except BaseException:
            shutil.rmtree(self._directory, ignore_errors=True)
            raise
        self.major = self._server.major
        self._numbers = count(1)
        self._shared: str | None = None
        self._execute(sql.SQL("alter system set max_wal_size = '256MB'"))
        self._execute(sql.SQL("select pg_reload_conf()"))
        self._create(_TEMPLATE, "template0")
        prepare(self._dsn(_TEMPLATE), migrate=True, allow_unsafe=False)

    @property
    def shared(self) -> str:
        """The database for tests that keep to queues of their own."""
        if self._shared is None:
            self._shared = self.new_database()
        return self._shared

    def new_database(self) -> str:
        name = f"db{next(self._numbers)}"
        self._create(name, _TEMPLATE)
        return self._dsn(name)

    def drop_database(self, dsn: str) -> None:
        name = conninfo_to_dict(dsn)["dbname"]
        self._execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(str(name))))

    def leave(self) -> None:
        """From now on the server stops by itself."""
        self._server.close()

    def await_end(self) -> None:
        await_stopped(self._server.data_dir)
        shutil.rmtree(self._directory, ignore_errors=True)

    def _create(self, name: str, template: str) -> None:
        # Copying files takes a quarter less CPU than writing the copy to the WAL; hundreds of tests have a database each.
        command = sql.SQL("create database {} template {} encoding 'UTF8' strategy file_copy")
        self._execute(command.format(sql.Identifier(name), sql.Identifier(template)))

    def _execute(self, command: sql.Composed | sql.SQL) -> None:
        with psycopg.connect(self._server.dsn, autocommit=True) as conn:
            conn.execute(command)

    def _dsn(self, database: str) -> str:
        return make_conninfo(self._server.dsn, dbname=database)


class Servers:
    def __init__(self) -> None:
        self._running: dict[str, Server] = {}

    def get(self, binaries: str) -> Server:
        if binaries not in self._running:
            try:
                self._running[binaries] = Server(binaries)
            except EmbeddedError as error:
                if binaries != "system":
                    raise
                pytest.skip(f"no PostgreSQL is installed on this machine: {error}")
        return self._running[binaries]

    def stop(self) -> None:
        for server in self._running.values():
            server.leave()
        for server in self._running.values():
            server.await_end()
        self._running.clear()


@pytest.fixture(scope="session")
def servers(plain_environment: None) -> Iterator[Servers]:
    servers = Servers()
    yield servers
    servers.stop()


@pytest.fixture(scope="session")
def server(servers: Servers) -> Server:
    """The PostgreSQL that most tests use."""
    return servers.get("18")


@pytest.fixture(params=ALL)
def every_server(request: pytest.FixtureRequest, servers: Servers) -> Server:
    """For tests of what may differ between versions: once per major, the installed one where there is one."""
    return servers.get(request.param)


@pytest.fixture
def database(server: Server) -> Iterator[str]:
    """The DSN of a fresh, migrated database, for tests that cannot share one."""
    dsn = server.new_database()
    yield dsn
    server.drop_database(dsn)


@pytest.fixture
def connection(server: Server) -> Iterator[psycopg.Connection[Any]]:
    """A connection to the shared database; what it does and does not commit is undone."""
    with psycopg.connect(server.shared) as conn:
        yield conn
        conn.rollback()
