"""Which sessions a statement waits for, found out while it waits: afterwards the server does not know any more."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, LiteralString

import psycopg
from psycopg import Connection
from psycopg.conninfo import make_conninfo

_EVERY_S = 0.1
_QUERY: LiteralString = """
    select a.pid, a.application_name, a.usename, clock_timestamp() - a.xact_start,
        left(regexp_replace(a.query, '\\s+', ' ', 'g'), 120)
    from pg_stat_activity a where a.pid = any (pg_blocking_pids(%s)) order by a.xact_start
"""


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
def watched(conn: Connection[Any], *, after_s: float) -> Generator[list[Blocker]]:
    """The sessions that kept a statement of the block waiting for longer than `after_s`; filled in when the block ends.

    On a connection of its own, opened only then.
    """
    blockers: list[Blocker] = []
    over = threading.Event()
    row = conn.execute("select pg_backend_pid()").fetchone()
    pid: int = row[0] if row else 0
    address = make_conninfo(conn.info.dsn, password=conn.info.password or None)

    def watch() -> None:
        if over.wait(after_s):
            return
        with suppress(psycopg.Error), psycopg.connect(address, autocommit=True, application_name="tarry") as own:
            while True:
                found = [Blocker(*row) for row in own.execute(_QUERY, (pid,)).fetchall()]
                if found:
                    blockers[:] = found
                if over.wait(_EVERY_S):
                    return

    watcher = threading.Thread(target=watch, name="tarry-blockers", daemon=True)
    watcher.start()
    try:
        yield blockers
    finally:
        over.set()
        watcher.join()
