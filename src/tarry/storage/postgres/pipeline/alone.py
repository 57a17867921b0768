"""Being the only one at something, for as long as a connection of its own is open."""

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
    """Refused while somebody else is at it. Gives a check that raises if that is not certain any more.

    The lock belongs to an open transaction, not to a session: so it works through a pooler in transaction mode.
    """
    with reach.connection() as conn:
        conn.execute("begin")
        try:
            drive(conn, Statement(sql("pipeline_lock_without_end"), {}, lambda rows: None).run())
            if not _locked(conn, name):
                raise Refused(f"another run of {name} is under way", hint="wait until it has ended, or end it")
            yield lambda: _check(conn, name)
        finally:
            # Where the connection is gone the lock is too, and why was said by the check.
            with suppress(psycopg.Error):
                conn.rollback()


def _locked(conn: Connection[Any], name: str) -> bool:
    locked = drive(conn, Statement(sql("pipeline_lock"), {"name": name}, lambda rows: bool(rows[0][0])).run())
    # In an open transaction the last statement with parameters keeps its portal, and with it a snapshot, which would keep
    # everybody's dead rows from being cleaned up for as long as the job takes. One by the simple protocol closes it.
    conn.execute("select", prepare=False)
    return locked


def _check(conn: Connection[Any], name: str) -> None:
    try:
        _locked(conn, name)  # whoever holds it may take it again
    except psycopg.Error as error:
        raise StoreUnavailable(
            f"the lock of {name} was lost with its connection, so another run may have been at it as well: {error}",
            hint="run it again: what is done is kept. If it comes again, see what ends connections: a time-out of a "
            "pooler for idle transactions, a firewall, an administrator",
        ) from error
