"""The caller's own connection: is it one we can use, and if not, where is the one inside it."""

from __future__ import annotations

from typing import Any, TypeVar

from psycopg import AsyncConnection, Connection
from psycopg.pq import TransactionStatus

from tarry.core.errors import InvalidInput

C = TypeVar("C", Connection[Any], AsyncConnection[Any])

_INSIDE = {
    "sqlalchemy": "the connection inside: session.connection().connection.driver_connection, or with an AsyncSession "
    "(await (await session.connection()).get_raw_connection()).driver_connection",
    "django": "the connection inside, from within transaction.atomic: django.db.connection.connection",
    "psycopg": "a blocking queue takes a psycopg.Connection, an awaiting one a psycopg.AsyncConnection",
    "psycopg_pool": "a connection from the pool: with pool.connection() as conn",
    "psycopg2": "Tarry works with psycopg 3 only",
    "asyncpg": "Tarry works with psycopg 3 only",
}


def commits_each_statement(conn: Connection[Any] | AsyncConnection[Any]) -> bool:
    """Whether the caller is in no transaction, and begins none: what must be done as a whole needs one of its own."""
    return conn.autocommit and conn.info.transaction_status is TransactionStatus.IDLE


def guest_connection(conn: object, kind: type[C]) -> C:
    """Refuses what merely contains a connection: which transaction that would be part of is the caller's to say."""
    if isinstance(conn, kind):
        return conn
    found = type(conn)
    raise InvalidInput(
        f"conn must be a psycopg.{kind.__name__} here, not {found.__name__}",
        hint=_INSIDE.get(found.__module__.partition(".")[0]),
    )
