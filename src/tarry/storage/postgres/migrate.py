"""Schema migrations: numbered SQL files, applied once each under a lock, upward only.

`pre` files are compatible with the code before and after a deploy; `post` files require that no old code runs.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import Any, LiteralString, NamedTuple, cast

import psycopg
from psycopg import Connection, errors
from psycopg.conninfo import make_conninfo
from psycopg.rows import class_row

from tarry.core.errors import InvalidState, LockTimeout, SchemaMismatch
from tarry.storage.postgres._sync.runner import transaction

_NAME = re.compile(r"(?P<number>\d{4})_(?P<phase>pre|post)_\w+\.sql")
LOCK_TIMEOUT_S = 2.0
"""How long a migration waits for a lock before it rolls back and retries."""
PAUSES_S = (1.0, 2.0, 4.0, 8.0)
TURN_S = 300.0
"""How long a process waits while another process migrates. No other statement queues behind this lock."""
# "tarr" in ASCII. Every version of Tarry must use the same number.
_LOCK: LiteralString = "select pg_advisory_xact_lock(1952542322)"
_CHECK_EVERY_S = 0.1
_BLOCKERS: LiteralString = """
    select a.pid, a.application_name as application, a.usename as user, clock_timestamp() - a.xact_start as open_for,
        left(regexp_replace(a.query, '\\s+', ' ', 'g'), 120) as query
    from pg_stat_activity a where a.pid = any (pg_blocking_pids(%s)) order by a.xact_start
"""
_BOOTSTRAP: tuple[LiteralString, ...] = (
    "create schema if not exists tarry",
    "create table if not exists tarry.migration (number int primary key, name text not null, checksum text not null, "
    "applied_at timestamptz not null default clock_timestamp())",
)


@dataclass(frozen=True, slots=True)
class Migration:
    number: int
    phase: str
    name: str
    sql: LiteralString

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()[:16]


@cache
def known() -> tuple[Migration, ...]:
    migrations: list[Migration] = []
    for file in files("tarry.storage.postgres").joinpath("migrations").iterdir():
        if match := _NAME.fullmatch(file.name):
            text = cast("LiteralString", file.read_text(encoding="utf-8"))
            migrations.append(Migration(int(match["number"]), match["phase"], file.name.removesuffix(".sql"), text))
    return tuple(sorted(migrations, key=lambda migration: migration.number))


def script() -> str:
    """All migrations as one text, for other tools."""
    parts = [f"{statement};" for statement in _BOOTSTRAP]
    for m in known():
        # Numbers, names and checksums come from packaged files: no external input.
        values = f"({m.number}, '{m.name}', '{m.checksum}')"
        note = f"insert into tarry.migration (number, name, checksum) values {values};"  # noqa: S608
        parts += [f"-- {m.name}", m.sql.rstrip(), note]
    return "\n\n".join(parts) + "\n"


@dataclass(frozen=True, slots=True)
class MigrationStatus:
    """A migration of this version of Tarry, of the database, or of both."""

    number: int
    name: str
    phase: str
    state: str
    """applied, pending, changed (applied with another content) or unknown (applied by a newer Tarry)."""
    applied_at: datetime | None = None


def statuses(conn: Connection[Any]) -> list[MigrationStatus]:
    applied, own = _applied(conn), {migration.number: migration for migration in known()}
    listed: list[MigrationStatus] = []
    for number in sorted(applied.keys() | own.keys()):
        migration, stored = own.get(number), applied.get(number)
        if stored is None:
            state = "pending"
        elif migration is None:
            state = "unknown"
        else:
            state = "applied" if stored.checksum == migration.checksum else "changed"
        name = migration.name if migration else stored.name if stored else ""
        phase = "post" if "_post_" in name else "pre"
        listed.append(MigrationStatus(number, name, phase, state, stored and stored.applied_at))
    return listed


def unchanged(conn: Connection[Any]) -> list[MigrationStatus]:
    """The statuses. Raises `SchemaMismatch` if a migration was applied with different content."""
    listed = statuses(conn)
    for status in listed:
        if status.state == "changed":
            raise SchemaMismatch(
                f"migration {status.name} was applied to this database with another content",
                hint="the file was changed after its release, or the database belongs to another build of Tarry",
            )
    return listed


def pending(conn: Connection[Any]) -> list[Migration]:
    numbers = {status.number for status in unchanged(conn) if status.state == "pending"}
    return [migration for migration in known() if migration.number in numbers]


def migrate(conn: Connection[Any], *, post: bool = True) -> list[Migration]:
    """Apply the pending migrations, each in its own transaction, and return them.

    Concurrent calls are serialized, and the later ones find nothing to do. If an open transaction of another session blocks
    a migration for too long, `LockTimeout` names that session; migrations that were already applied stay.
    """
    done: list[Migration] = []
    for migration in known() if pending(conn) else ():
        if migration.phase == "post" and not post:
            break
        try:
            if _apply_patiently(conn, migration):
                done.append(migration)
        except errors.InsufficientPrivilege as error:
            raise InvalidState(
                f"this role may not change the schema: {str(error).strip()}",
                hint="run tarry db migrate as the owner of the schema, or: grant create on database … to this role",
            ) from error
    return done


def _apply_patiently(conn: Connection[Any], migration: Migration) -> bool:
    """Retry while other sessions hold locks that the migration needs. Between the tries their statements continue."""
    for pause_s in (*PAUSES_S, None):
        with _watched(conn, after_s=LOCK_TIMEOUT_S / 2) as blockers:
            try:
                return _apply(conn, migration)
            except errors.LockNotAvailable as error:
                locked = error
        if pause_s is None:
            raise _lock_timeout(migration, blockers) from locked
        time.sleep(pause_s)
    raise AssertionError("unreachable")


def _lock_timeout(migration: Migration, blockers: list[Blocker]) -> LockTimeout:
    held = "; ".join(str(blocker) for blocker in blockers) or "a session that ended meanwhile"
    end = f", or end it: select pg_terminate_backend({blockers[0].pid})" if blockers else ""
    return LockTimeout(
        f"migration {migration.name} was not applied: {len(PAUSES_S) + 1} tries of {LOCK_TIMEOUT_S:g} s each found "
        f"its tables locked by {held}",
        hint=f"wait for that transaction{end}; then migrate again: tarry db migrate",
    )


def _apply(conn: Connection[Any], migration: Migration) -> bool:
    with transaction(conn):
        conn.execute("select set_config('lock_timeout', %s, true)", (f"{round(TURN_S * 1000)}ms",))
        conn.execute(_LOCK)
        # A waiting ALTER TABLE blocks the statements of other sessions behind it, so it must not wait long.
        conn.execute("select set_config('lock_timeout', %s, true)", (f"{round(LOCK_TIMEOUT_S * 1000)}ms",))
        for statement in _BOOTSTRAP:
            conn.execute(statement)
        if migration not in pending(conn):
            return False
        conn.execute(migration.sql)
        conn.execute(
            "insert into tarry.migration (number, name, checksum) values (%s, %s, %s)",
            (migration.number, migration.name, migration.checksum),
        )
    return True


class Applied(NamedTuple):
    number: int
    name: str
    checksum: str
    applied_at: datetime


def _applied(conn: Connection[Any]) -> dict[int, Applied]:
    row = conn.execute("select to_regclass('tarry.migration') is not null").fetchone()
    if not row or not row[0]:
        return {}
    cursor = conn.cursor(row_factory=class_row(Applied))
    rows = cursor.execute("select number, name, checksum, applied_at from tarry.migration order by number").fetchall()
    return {row.number: row for row in rows}


@dataclass(frozen=True, slots=True)
class Blocker:
    """A session that holds a lock, or waits for one ahead of the statement."""

    pid: int
    application: str | None
    user: str | None
    open_for: timedelta | None
    """How old its transaction is."""
    query: str | None
    """Its last statement, which need not be the one that took the lock. Hidden from roles that may not see it."""

    def __str__(self) -> str:
        age = "" if self.open_for is None else f", transaction open for {round(self.open_for.total_seconds())} s"
        name = f"{self.application or 'no application name'}, user {self.user}"
        return f"pid {self.pid} ({name}{age}): {self.query or 'no statement'}"


@contextmanager
def _watched(conn: Connection[Any], *, after_s: float) -> Generator[list[Blocker]]:
    """The sessions that block a statement of the `with` block for longer than `after_s`; complete when the block ends.

    They are read on a second connection, opened after `after_s`: the server lists blockers only while the statement waits.
    """
    blockers: list[Blocker] = []
    is_done = threading.Event()
    row = conn.execute("select pg_backend_pid()").fetchone()
    pid: int = row[0] if row else 0
    address = make_conninfo(conn.info.dsn, password=conn.info.password or None)

    def watch() -> None:
        if is_done.wait(after_s):
            return
        with suppress(psycopg.Error), psycopg.connect(address, autocommit=True, application_name="tarry") as own:
            while True:
                sessions = own.cursor(row_factory=class_row(Blocker)).execute(_BLOCKERS, (pid,)).fetchall()
                if sessions:
                    blockers[:] = sessions
                if is_done.wait(_CHECK_EVERY_S):
                    return

    watcher = threading.Thread(target=watch, name="tarry-blockers", daemon=True)
    watcher.start()
    try:
        yield blockers
    finally:
        is_done.set()
        watcher.join()
