"""How we open connections of our own: direct ones are tuned and prepare statements, those through a pooler keep no state."""

from __future__ import annotations

import os
import socket
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, LiteralString

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.conninfo import conninfo_to_dict

from tarry.core.errors import InvalidInput, StoreUnavailable
from tarry.storage.postgres.arrays import teach
from tarry.storage.postgres.faults import translated
from tarry.storage.postgres.fencing import note_session
from tarry.storage.postgres.instants import read_in_utc

if TYPE_CHECKING:
    from tarry.core.ports import Connections

# Behind a pooler in transaction mode the pid we were told is not the pid that answers. There we neither prepare nor set
# anything, and each statement is planned when it runs, with the table as it is. On a connection of our own a plan is
# kept, so it must not depend on how full the table was when it was made: the only ways left are the ones the indexes give.
# A statement that waits for a lock gives its connection back after `lock_timeout` and is tried again until `lock_for` is
# over (`_retried`, `lock_turns`). Behind a pooler, `transaction` sets it for each one.
_TUNE: Final[LiteralString] = """
    select pg_backend_pid() = %(pid)s::int, case when pg_backend_pid() = %(pid)s::int then
        set_config('enable_seqscan', 'off', false) || set_config('enable_hashjoin', 'off', false)
        || set_config('enable_mergejoin', 'off', false) || set_config('enable_bitmapscan', 'off', false)
        || set_config('plan_cache_mode', 'force_generic_plan', false) || set_config('jit', 'off', false)
        || set_config('timezone', 'UTC', false) || set_config('lock_timeout', '200ms', false)
        || set_config('statement_timeout', coalesce(%(statement_ms)s::text, current_setting('statement_timeout')), false)
    end, (select backend_start from pg_stat_get_activity(pg_backend_pid()))
"""


def keeps_state(conn: Connection[Any] | AsyncConnection[Any]) -> bool:
    """Whether `configure` found a session of our own, with its `lock_timeout`; else a pooler is between."""
    return conn.prepare_threshold is not None


def configure(conn: Connection[Any], statement_for: timedelta | None = None) -> None:
    teach(conn.adapters)
    conn.prepare_threshold = None
    row = conn.execute(_TUNE, _tuning(conn, statement_for)).fetchone()
    if row and row[0]:
        conn.prepare_threshold = 0
        note_session(conn, row[2])
    else:
        read_in_utc(conn.adapters)


async def aconfigure(conn: AsyncConnection[Any], statement_for: timedelta | None = None) -> None:
    teach(conn.adapters)
    conn.prepare_threshold = None
    cursor = await conn.execute(_TUNE, _tuning(conn, statement_for))
    row = await cursor.fetchone()
    if row and row[0]:
        conn.prepare_threshold = 0
        note_session(conn, row[2])
    else:
        read_in_utc(conn.adapters)


def _tuning(conn: Connection[Any] | AsyncConnection[Any], statement_for: timedelta | None) -> dict[str, Any]:
    limit = None if statement_for is None else str(max(1, round(statement_for.total_seconds() * 1_000)))
    return {"pid": conn.info.backend_pid, "statement_ms": limit}


KEYWORDS: Final[dict[str, Any]] = {
    "autocommit": True,
    "application_name": "tarry",
    "connect_timeout": 10,
    # A peer that vanished without a word is noticed within seconds, not after the kernel's two hours.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}


def keywords(dsn: str) -> dict[str, Any]:
    """How to open a connection to this address: our wishes, except where the address has its own."""
    try:
        said = conninfo_to_dict(dsn)
    except (psycopg.ProgrammingError, AttributeError):  # the latter: not even a text
        raise InvalidInput(
            "this is not an address of a PostgreSQL database",
            hint="write postgresql://user@host/database, or: host=… dbname=… user=…",
        ) from None  # the driver's words may quote the address, and with it a password
    return {name: value for name, value in KEYWORDS.items() if name not in said}


@contextmanager
def connected(dsn: str) -> Generator[Connection[Any]]:
    """One connection for one piece of work, with errors in our own words. It prepares nothing: a pooler may be between."""
    try:
        conn = psycopg.connect(dsn, **keywords(dsn))
    except psycopg.OperationalError as error:
        raise StoreUnavailable(
            f"the database cannot be reached: {error}",
            hint="check the address, the user and the password, and that the server runs: tarry doctor",
        ) from error
    try:
        with conn:
            conn.prepare_threshold = None
            yield conn
    except psycopg.Error as error:
        if (named := translated(error, 1)) is error:
            raise
        raise named from error


def cut(conn: Connection[Any] | AsyncConnection[Any]) -> None:
    """Shut the socket down. Closing the connection would not do: its reader would wait for the closed descriptor."""
    with suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(conn.pgconn.socket)) as shared:
        shared.shutdown(socket.SHUT_RDWR)


def pool_now(stats: Mapping[str, int]) -> Connections:
    """A pool's statistics, in the words of the port."""
    # Here, because the ports know everything, and a task of Spark, which has no pool, pays for each import.
    from tarry.core.ports import Connections

    return Connections(
        open=stats.get("pool_size", 0),
        idle=stats.get("pool_available", 0),
        most=stats.get("pool_max", 0),
        waiting=stats.get("requests_waiting", 0),
    )
