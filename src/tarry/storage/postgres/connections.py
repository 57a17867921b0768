"""The store's own connections: direct ones are tuned and prepare statements, those through a pooler keep no session state."""

from __future__ import annotations

import os
import socket
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, LiteralString, TypeVar

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.rows import namedtuple_row

from tarry.core.errors import InvalidInput, InvalidState, StoreUnavailable
from tarry.storage.postgres.arrays import read_in_utc, register_array_dumpers
from tarry.storage.postgres.errors import translated
from tarry.storage.postgres.fencing import note_session
from tarry.storage.postgres.prepared import keep_session, session_of
from tarry.storage.postgres.schema_name import DEFAULT, keep_schema, other_options, schema_of

if TYPE_CHECKING:
    from tarry.core.ports import Connections
    from tarry.core.settings import StoreSettings

C = TypeVar("C", Connection[Any], AsyncConnection[Any])

# Behind a pooler in transaction mode the connection's pid differs from the server process's pid. There we neither prepare
# nor set anything, and each statement is planned when it runs, for the current table size. A direct connection keeps its
# plans, so they must not depend on the table size at planning time: only index scans and nested loops stay enabled.
# A statement that waits for a lock returns its connection to the pool after `lock_timeout` and is retried until `lock_for`
# has passed (`_retried`, `_lock_turns`). Behind a pooler, `transaction` sets `lock_timeout` for each transaction.
_TUNE: Final[LiteralString] = """
    select pg_backend_pid() = %(pid)s::int as keeps_state, case when pg_backend_pid() = %(pid)s::int then
        set_config('enable_seqscan', 'off', false) || set_config('enable_hashjoin', 'off', false)
        || set_config('enable_mergejoin', 'off', false) || set_config('enable_bitmapscan', 'off', false)
        || set_config('plan_cache_mode', 'force_generic_plan', false) || set_config('jit', 'off', false)
        || set_config('timezone', 'UTC', false) || set_config('lock_timeout', '200ms', false)
        || set_config('statement_timeout', coalesce(%(statement_ms)s::text, current_setting('statement_timeout')), false)
    end as tuned, (select backend_start from pg_stat_get_activity(pg_backend_pid())) as backend_start
"""


def keeps_state(conn: Connection[Any] | AsyncConnection[Any]) -> bool:
    """Whether `configure` found a direct session and set its `lock_timeout`. False behind a pooler."""
    return session_of(conn) is not None


def configure(conn: Connection[Any], statement_for: timedelta | None = None, schema: str = DEFAULT) -> None:
    keep_schema(conn, schema)
    rows = conn.cursor(row_factory=namedtuple_row)
    _configured(conn, rows.execute(_TUNE, _tuning(conn, statement_for)).fetchone())


async def aconfigure(conn: AsyncConnection[Any], statement_for: timedelta | None = None, schema: str = DEFAULT) -> None:
    keep_schema(conn, schema)
    rows = conn.cursor(row_factory=namedtuple_row)
    _configured(conn, await (await rows.execute(_TUNE, _tuning(conn, statement_for))).fetchone())


def _tuning(conn: Connection[Any] | AsyncConnection[Any], statement_for: timedelta | None) -> dict[str, Any]:
    register_array_dumpers(conn.adapters)
    conn.prepare_threshold = None  # `PreparedStatements` prepares; the driver must not deallocate its statements
    limit = None if statement_for is None else str(max(1, round(statement_for.total_seconds() * 1_000)))
    return {"pid": conn.info.backend_pid, "statement_ms": limit}


def _configured(conn: Connection[Any] | AsyncConnection[Any], row: Any) -> None:
    if row and row.keeps_state:
        keep_session(conn)
        note_session(conn, row.backend_start)
    else:
        read_in_utc(conn.adapters)


KEYWORDS: Final[dict[str, Any]] = {
    "autocommit": True,
    "application_name": "tarry",
    "connect_timeout": 10,
    # Detect a silently vanished peer within seconds instead of the kernel's two hours.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}


def keywords(dsn: str) -> dict[str, Any]:
    """Keywords to open a connection to this address: our defaults, except where the address has its own."""
    try:
        given = conninfo_to_dict(dsn)
    except (psycopg.ProgrammingError, AttributeError):  # AttributeError: `dsn` is not a string
        raise InvalidInput(
            "this is not an address of a PostgreSQL database",
            hint="write postgresql://user@host/database, host=… dbname=… user=…, or redis://host; the URL of a broker is for "
            "tarry.http.Client",
        ) from None  # the driver's message may quote the address and its password
    return {name: value for name, value in KEYWORDS.items() if name not in given} | other_options(dsn)


def opened(dsn: str) -> Connection[Any]:
    """Open a connection that prepares nothing: the address may be a pooler's."""
    try:
        conn = psycopg.connect(dsn, **keywords(dsn))
    except psycopg.OperationalError as error:
        raise StoreUnavailable(
            f"the database cannot be reached: {error}",
            hint="check the address, the user and the password, and that the server runs: tarry doctor",
        ) from error
    conn.prepare_threshold = None
    keep_schema(conn, schema_of(dsn))
    return conn


@contextmanager
def connected(dsn: str) -> Generator[Connection[Any]]:
    """A connection for the duration of a block. Driver errors are translated."""
    conn = opened(dsn)
    try:
        with conn:
            yield conn
    except psycopg.Error as error:
        if (named := translated(error, 1)) is error:
            raise
        raise named from error


def cut(conn: Connection[Any] | AsyncConnection[Any]) -> None:
    """Shut the socket down. After a mere close, a thread that reads from the connection would keep waiting."""
    with suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(conn.pgconn.socket)) as shared:
        shared.shutdown(socket.SHUT_RDWR)


def pool_options(dsn: str, settings: StoreSettings) -> dict[str, Any]:
    connect_for_s = settings.connect_for.total_seconds()
    return {
        "name": "tarry",
        "kwargs": keywords(dsn),
        "min_size": 0,
        "max_size": settings.pool_size,
        "timeout": connect_for_s,
        # Less than the caller's wait: its next try then starts a new connection attempt, instead of waiting for a back-off
        # that doubled for as long as the server was unavailable.
        "reconnect_timeout": 0.8 * connect_for_s,
    }


def pool_now(stats: Mapping[str, int]) -> Connections:
    # Imported here: the ports import most of core, and Spark tasks, which have no pool, pay for each import.
    from tarry.core.ports import Connections

    return Connections(
        open=stats.get("pool_size", 0),
        idle=stats.get("pool_available", 0),
        most=stats.get("pool_max", 0),
        waiting=stats.get("requests_waiting", 0),
    )


_INSIDE = {
    "sqlalchemy": "a session, or a connection: with engine.begin() as conn",
    "psycopg": "a blocking queue takes a psycopg.Connection, an awaiting one a psycopg.AsyncConnection",
    "psycopg_pool": "a connection from the pool: with pool.connection() as conn",
    "psycopg2": "Tarry works with psycopg 3 only",
    "asyncpg": "Tarry works with psycopg 3 only",
}


def commits_each_statement(conn: Connection[Any] | AsyncConnection[Any]) -> bool:
    """Whether the caller uses autocommit outside a transaction: an atomic operation must then begin its own."""
    return conn.autocommit and conn.info.transaction_status is TransactionStatus.IDLE


def caller_connection(conn: object, kind: type[C]) -> C:
    """The psycopg connection itself, or the one inside a SQLAlchemy session or connection or a Django connection."""
    if isinstance(conn, kind):
        return conn
    inner = _driver_connection(conn)
    if isinstance(inner, kind):
        return inner
    actual = type(conn if inner is None else inner)
    raise InvalidInput(
        f"conn must be a psycopg.{kind.__name__} here, not {actual.__name__}",
        hint=_INSIDE.get(actual.__module__.partition(".")[0]),
    )


async def caller_connection_async(conn: Any) -> AsyncConnection[Any]:
    """As `caller_connection`. SQLAlchemy's async sessions and connections run their blocking halves in a greenlet."""
    if _is_of("sqlalchemy", conn) and hasattr(conn, "run_sync"):
        conn = await conn.run_sync(_driver_connection)
    return caller_connection(conn, AsyncConnection)


def _driver_connection(conn: Any) -> object:
    if _is_of("sqlalchemy", conn):
        if not hasattr(conn, "driver_connection"):
            held: Any = getattr(conn, "connection", None)  # a method of sessions, a property of connections
            conn = conn.connection().connection if callable(held) else held
        return getattr(conn, "driver_connection", None)
    if _is_of("django", conn):
        conn.ensure_connection()
        return conn.connection
    return None


def _is_of(package: str, value: object) -> bool:
    return any(base.__module__.partition(".")[0] == package for base in type(value).__mro__)


class ForkGuard:
    """Refuses to use the parent's connections after a fork: two processes on one socket lose each other's responses."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def is_here(self) -> bool:
        return self._pid == os.getpid()

    def check(self) -> None:
        if self._pid != os.getpid():
            raise InvalidState(
                "this app was opened by another process, which then forked this one",
                hint="connect after the fork: each process has its own app",
            )
