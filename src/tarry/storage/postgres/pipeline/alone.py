"""Mutual exclusion by an advisory lock, held while a dedicated connection is open."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import Connection

from tarry.core.errors import Refused, StoreUnavailable
from tarry.storage.postgres.drive import drive
from tarry.storage.postgres.pipeline.reach import Reach
from tarry.storage.postgres.statement import Statement, sql


@contextmanager
def alone_at(reach: Reach, name: str) -> Generator[Callable[[], None]]:
    """Hold the lock `name`; raises if another process holds it. Yields a check that raises once the lock may be lost.

    The lock belongs to an open transaction, not to a session, so it works through a pooler in transaction mode.
    """
    with reach.connection() as conn:
        conn.execute("begin")
        try:
            drive(conn, Statement(sql("pipeline_lock_without_end"), {}, lambda rows: None).run())
            if not _locked(conn, name):
                raise Refused(f"another run of {name} is under way", hint="wait until it has ended, or end it")
            yield lambda: _check(conn, name)
        finally:
            # If the connection is gone, so is the lock; the check has already raised the reason.
            with suppress(psycopg.Error):
                conn.rollback()


def _locked(conn: Connection[Any], name: str) -> bool:
    locked = drive(conn, Statement(sql("pipeline_lock"), {"name": name}, lambda rows: bool(rows[0][0])).run())
    # In an open transaction the portal of the last parameterized statement stays open and keeps a snapshot, which would
    # delay vacuum for the duration of the job. A statement by the simple protocol closes it.
    conn.execute("select", prepare=False)
    return locked


def _check(conn: Connection[Any], name: str) -> None:
    try:
        _locked(conn, name)  # the lock is reentrant for its holder
    except psycopg.Error as error:
        raise StoreUnavailable(
            f"the lock of {name} was lost with its connection, so another run may have been at it as well: {error}",
            hint="run it again: what is done is kept. If it comes again, see what ends connections: a time-out of a "
            "pooler for idle transactions, a firewall, an administrator",
        ) from error
