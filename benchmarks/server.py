"""The PostgreSQL under test: our own for this run, or the one the caller names. Every contender gets a database."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from psycopg import Connection, sql
from psycopg.conninfo import make_conninfo

BUILD = Path(__file__).parent.parent / "build"
_STOP_FOR = 30.0
# Checkpoints are rare, or the full pages after one would be counted for the next contender.
_TUNING: dict[LiteralString, LiteralString] = {"max_wal_size": "8GB", "checkpoint_timeout": "30min"}


class Server:
    def __init__(self, dsn: str, *, own: bool) -> None:
        self.dsn = dsn
        self.own = own
        self.admin: Connection[Any] = psycopg.connect(dsn, autocommit=True, application_name="bench")
        self._made: dict[str, str] = {}

    def database(self, name: str) -> str:
        """A DSN of a database of this run, created on first use."""
        if name not in self._made:
            full = f"bench_{os.getpid()}_{name}"
            self.admin.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(full)))
            self.admin.execute(sql.SQL("create database {} template template0").format(sql.Identifier(full)))
            self._made[name] = full
        return make_conninfo(self.dsn, dbname=self._made[name])

    def settings(self) -> dict[str, str]:
        names = (
            *("server_version", "fsync", "synchronous_commit", "full_page_writes", "data_checksums", "wal_level"),
            *("shared_buffers", "max_wal_size", "checkpoint_timeout", "max_connections", "wal_sync_method"),
        )
        return {name: self._setting(name) for name in names}

    def check_durable(self) -> None:
        for name in ("fsync", "synchronous_commit", "full_page_writes"):
            if (value := self._setting(name)) != "on":
                raise SystemExit(f"{name} is {value}: a benchmark of a database that may lose messages is meaningless.")

    def close(self) -> None:
        with suppress(psycopg.Error):
            for full in self._made.values():
                self.admin.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(full)))
        self.admin.close()

    def _setting(self, name: str) -> str:
        row = self.admin.execute("select current_setting(%s)", [name]).fetchone()
        assert row is not None
        return row[0]


@contextmanager
def running_server(dsn: str | None, root: Path = BUILD) -> Generator[Server]:
    """`root`: the folder of a server of our own."""
    if dsn is None:
        with _embedded(root) as own:
            yield own
        return
    server = Server(dsn, own=False)
    try:
        yield server
    finally:
        server.close()


@contextmanager
def _embedded(root: Path) -> Generator[Server]:
    """A fresh one, gone afterwards."""
    from tarry.storage.postgres.embedded import EmbeddedSettings, start

    root.mkdir(exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix="bench-", dir=root))
    try:
        with start(EmbeddedSettings(data_dir=home)) as embedded:
            server = Server(embedded.dsn, own=True)
            try:
                tuned(server)
                yield server
            finally:
                server.close()
        await_stop(home)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def tuned(server: Server) -> None:
    for name, value in _TUNING.items():
        server.admin.execute(sql.SQL("alter system set {} = {}").format(sql.Identifier(name), value))
    server.admin.execute("select pg_reload_conf()")


def await_stop(home: Path) -> None:
    """The server leaves shortly after its last user; its files may go only then."""
    deadline = time.monotonic() + _STOP_FOR
    while time.monotonic() < deadline and any(home.rglob("postmaster.pid")):
        time.sleep(0.05)
