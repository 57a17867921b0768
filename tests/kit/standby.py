"""Streaming standbys of a test's own server: their replay and their connection can be paused, and they can be promoted."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tarry.storage.postgres.embedded import EmbeddedSettings, start
from tarry.storage.postgres.embedded.supervisor.layout import Layout
from tests.kit.directories import new_directory
from tests.storage.postgres.fallible import TIMEOUT_S, FallibleServer

_MAY_REPLICATE = "local replication all trust\n"


class Standby(FallibleServer):
    """A physical standby. `dsn` names the same database as the primary's DSN; it is read-only until `promote`.

    It can also be killed, stopped and started, as every `FallibleServer`.
    """

    def __init__(self, primary: str, home: Path, name: str) -> None:
        """`primary`: a DSN of a superuser, over the socket of a server that was started on this machine."""
        self.primary = primary
        self.name = name
        """The application name of its connection: its row in pg_stat_replication of the primary."""
        folder = Path(_value(primary, "select setting from pg_config where name = 'BINDIR'"))
        _allow_replication(primary)
        layout = Layout(home)
        layout.home.mkdir(mode=0o700)
        layout.startup_lock.touch(mode=0o600)
        self._conninfo = make_conninfo(_reachable(primary), application_name=name)
        _copy(folder, self._conninfo, layout.pgdata)
        # The name must be in the standby's own settings; pg_basebackup -R would write it only as a fallback.
        with (layout.pgdata / "postgresql.auto.conf").open("a") as conf:
            conf.write(f"primary_conninfo = {_quoted(self._conninfo)}\nwal_retrieve_retry_interval = '100ms'\n")
        (layout.pgdata / "standby.signal").touch()
        self._settings = EmbeddedSettings(data_dir=home, binaries=str(folder))
        self._server = start(self._settings)
        self.home = self._server.data_dir
        self.dsn = make_conninfo(self._server.dsn, dbname=conninfo_to_dict(primary)["dbname"])

    @property
    def is_in_recovery(self) -> bool:
        return bool(_value(self.dsn, "select pg_is_in_recovery()"))

    def require(self) -> None:
        """Synchronous: from now on commits on the primary wait until this standby has flushed them."""
        names = sql.SQL("alter system set synchronous_standby_names = {}").format(sql.Literal(f'"{self.name}"'))
        _execute(self.primary, names, sql.SQL("select pg_reload_conf()"))
        _eventually(
            lambda: _value(self.primary, _SYNC_STATE, (self.name,)) == "sync", "the primary waits for the standby"
        )

    def await_caught_up(self) -> None:
        """Until everything that the primary has written by now is flushed and replayed here."""
        written = _value(self.primary, "select pg_current_wal_insert_lsn()::text")
        flush = sql.SQL(
            "select pg_logical_emit_message(true, 'test', 'flush')"
        )  # also what was committed asynchronously
        _execute(self.primary, flush)
        replayed: LiteralString = "select pg_last_wal_replay_lsn() >= %s::pg_lsn"
        _eventually(lambda: bool(_value(self.dsn, replayed, (written,))), "the standby has replayed what was written")

    def pause_replay(self) -> None:
        """It goes on receiving and flushing, and shows nothing new; a promotion replays what it has received."""
        _execute(self.dsn, sql.SQL("select pg_wal_replay_pause()"))
        _eventually(
            lambda: _value(self.dsn, "select pg_get_wal_replay_pause_state()") == "paused", "the replay is paused"
        )

    def resume_replay(self) -> None:
        _execute(self.dsn, sql.SQL("select pg_wal_replay_resume()"))

    def pause_receive(self) -> None:
        """Cut off from its primary: what is written from now on is not here."""
        self._connect_to("")
        _eventually(
            lambda: not _value(self.primary, "select count(*) from pg_stat_replication where application_name = %s",
                               (self.name,)),
            "the primary has no connection of the standby",
        )  # fmt: skip

    def resume_receive(self) -> None:
        self._connect_to(self._conninfo)

    def promote(self) -> None:
        """It becomes a primary, on a new timeline. End the old primary first, or there are two."""
        promoted = _value(self.dsn, "select pg_promote(true, 60)")
        assert promoted, "the standby was not promoted in a minute"

    def _connect_to(self, conninfo: str) -> None:
        change = sql.SQL("alter system set primary_conninfo = {}").format(sql.Literal(conninfo))
        _execute(self.dsn, change, sql.SQL("select pg_reload_conf()"))


_SYNC_STATE: LiteralString = "select max(sync_state) from pg_stat_replication where application_name = %s"


@contextmanager
def standby_of(primary: str, *, synchronous: bool = False, name: str = "standby") -> Generator[Standby]:
    """A streaming standby of the server behind this DSN; with `synchronous` commits wait for it.

    The setting belongs to the whole server: only for a server of the test's own (`fallible_server`).
    """
    directory = new_directory("tarry-standby-")
    try:
        standby = Standby(primary, directory / "home", name)
        try:
            if synchronous:
                standby.require()
            yield standby
        finally:
            standby.close()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _allow_replication(primary: str) -> None:
    """The embedded server lets no standby in."""
    access = Path(_value(primary, "show hba_file"))
    if _MAY_REPLICATE not in access.read_text():
        with access.open("a") as file:
            file.write(_MAY_REPLICATE)
        _execute(primary, sql.SQL("select pg_reload_conf()"))
        rules: LiteralString = "select count(*) from pg_hba_file_rules where 'replication' = any(database)"
        _eventually(lambda: bool(_value(primary, rules)), "the server lets standbys in")


def _reachable(primary: str) -> str:
    """Without the database: a connection for replication has none."""
    parts = {name: value for name, value in conninfo_to_dict(primary).items() if name in ("host", "port", "user")}
    return make_conninfo("", **parts)


def _copy(folder: Path, conninfo: str, pgdata: Path) -> None:
    command = [str(folder / "pg_basebackup"), "-d", conninfo, "-D", str(pgdata), "-X", "stream", "-c", "fast", "-N"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _value(dsn: str, query: LiteralString, params: tuple[Any, ...] = ()) -> Any:
    with psycopg.connect(dsn, autocommit=True) as conn:
        row = conn.execute(query, params).fetchone()
    return row[0] if row is not None else None


def _execute(dsn: str, *commands: sql.SQL | sql.Composed) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        for command in commands:
            conn.execute(command)


def _eventually(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, f"{TIMEOUT_S:.0f} s passed, and still not: {what}"
        time.sleep(0.01)
