"""Numbered SQL files, applied once each, up only, under a lock. `pre` files suit the code before and after a deploy;
`post` files wait until no old code runs."""

from __future__ import annotations

import hashlib
import re
import time
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, LiteralString, NamedTuple, cast

from psycopg import Connection, errors

from tarry.core.errors import HeldUp, Refused, SchemaMismatch
from tarry.storage.postgres.blockers import Blocker, watched
from tarry.storage.postgres.drive import transaction

_NAME = re.compile(r"(?P<number>\d{4})_(?P<phase>pre|post)_\w+\.sql")
LOCK_TIMEOUT_S = 2.0
"""How long a migration waits for a lock before it gives way and tries again."""
PAUSES_S = (1.0, 2.0, 4.0, 8.0)
TURN_S = 300.0
"""How long a process waits while another one migrates. Nothing queues behind it."""
# "tarr" in ASCII: any number will do, as long as every version of Tarry uses the same.
_LOCK: LiteralString = "select pg_advisory_xact_lock(1952542322)"
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
    found: list[Migration] = []
    for file in files("tarry.storage.postgres").joinpath("migrations").iterdir():
        if match := _NAME.fullmatch(file.name):
            text = cast("LiteralString", file.read_text(encoding="utf-8"))
            found.append(Migration(int(match["number"]), match["phase"], file.name.removesuffix(".sql"), text))
    return tuple(sorted(found, key=lambda migration: migration.number))


def script() -> str:
    """Everything as one text, for people who apply schema changes with a tool of their own."""
    parts = [f"{statement};" for statement in _BOOTSTRAP]
    for m in known():
        # Numbers, names and checksums are our own file names: nothing from outside gets in here.
        values = f"({m.number}, '{m.name}', '{m.checksum}')"
        note = f"insert into tarry.migration (number, name, checksum) values {values};"  # noqa: S608
        parts += [f"-- {m.name}", m.sql.rstrip(), note]
    return "\n\n".join(parts) + "\n"


class Standing(NamedTuple):
    """How a database stands to this version of Tarry."""

    pending: list[Migration]
    """What this version has and the database has not."""
    newer: list[str]
    """Names of what the database has and this version does not know."""

    @property
    def left_behind(self) -> list[str]:
        """Those of the newer ones that code of this version cannot live with."""
        return [name for name in self.newer if phase_of(name) == "post"]


def phase_of(name: str) -> str:
    return "post" if "_post_" in name else "pre"


def standing(conn: Connection[Any]) -> Standing:
    applied = _applied(conn)
    numbers = {migration.number for migration in known()}
    for migration in known():
        if migration.number in applied and applied[migration.number].checksum != migration.checksum:
            raise SchemaMismatch(
                f"migration {migration.name} was applied to this database with another content",
                hint="the file was changed after its release, or the database belongs to another build of Tarry",
            )
    return Standing(
        [migration for migration in known() if migration.number not in applied],
        [row.name for number, row in applied.items() if number not in numbers],
    )


def pending(conn: Connection[Any]) -> list[Migration]:
    return standing(conn).pending


def migrate(conn: Connection[Any], *, post: bool = True) -> list[Migration]:
    """Apply what is pending, each file in a transaction of its own, and say what was applied.

    Any number of processes may do this at once: they take turns, and the later ones find nothing to do. Where an open
    transaction of another session is in the way for too long, `HeldUp` names it; what was applied before stays applied.
    """
    done: list[Migration] = []
    for migration in known() if pending(conn) else ():
        if migration.phase == "post" and not post:
            break
        try:
            if _apply_patiently(conn, migration):
                done.append(migration)
        except errors.InsufficientPrivilege as error:
            raise Refused(
                f"this role may not change the schema: {str(error).strip()}",
                hint="run tarry db migrate as the owner of the schema, or: grant create on database … to this role",
            ) from error
    return done


def _apply_patiently(conn: Connection[Any], migration: Migration) -> bool:
    """Try again while other sessions hold what the migration needs; between the tries their statements go on."""
    for pause_s in (*PAUSES_S, None):
        with watched(conn, after_s=LOCK_TIMEOUT_S / 2) as blockers:
            try:
                return _apply(conn, migration)
            except errors.LockNotAvailable as error:
                locked = error
        if pause_s is None:
            raise _held_up(migration, blockers) from locked
        time.sleep(pause_s)
    raise AssertionError("unreachable")


def _held_up(migration: Migration, blockers: list[Blocker]) -> HeldUp:
    held = "; ".join(str(blocker) for blocker in blockers) or "a session that ended meanwhile"
    end = f", or end it: select pg_terminate_backend({blockers[0].pid})" if blockers else ""
    return HeldUp(
        f"migration {migration.name} was not applied: {len(PAUSES_S) + 1} tries of {LOCK_TIMEOUT_S:g} s each found "
        f"its tables locked by {held}",
        hint=f"wait for that transaction{end}; then migrate again: tarry db migrate",
    )


def _apply(conn: Connection[Any], migration: Migration) -> bool:
    with transaction(conn):
        conn.execute("select set_config('lock_timeout', %s, true)", (f"{round(TURN_S * 1000)}ms",))
        conn.execute(_LOCK)
        # Statements of other sessions queue behind a waiting ALTER TABLE: so it never waits for long.
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


class _Row(NamedTuple):
    name: str
    checksum: str


def _applied(conn: Connection[Any]) -> dict[int, _Row]:
    row = conn.execute("select to_regclass('tarry.migration') is not null").fetchone()
    if not row or not row[0]:
        return {}
    found = conn.execute("select number, name, checksum from tarry.migration order by number").fetchall()
    return {number: _Row(*rest) for number, *rest in found}
