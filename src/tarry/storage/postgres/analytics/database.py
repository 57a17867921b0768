"""Database access of the pipeline: one connection per operation, closed afterwards."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg import Connection

from tarry.core.errors import StoreUnavailable
from tarry.storage.postgres.connections import keywords
from tarry.storage.postgres.drive import drive, transaction
from tarry.storage.postgres.faults import is_transient, translated
from tarry.storage.postgres.statement import Op

R = TypeVar("R")

_TRIES = 3
LOCK_LIMIT: LiteralString = "set local lock_timeout = '5min'"
"""Longer than that of a store: jobs wait for each other's merges. Its own transaction: a pooler keeps no session state."""


class Reach:
    """Connection factory. No pool: jobs have few operations, and no connection may stay open while Spark works."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn

    @contextmanager
    def connection(self) -> Generator[Connection[Any]]:
        """A connection in autocommit mode, without prepared statements."""
        try:
            conn = psycopg.connect(self.dsn, **keywords(self.dsn))
        except psycopg.OperationalError as error:
            raise StoreUnavailable(
                f"the database cannot be reached: {error}",
                hint="check the address and that the server runs: tarry doctor",
            ) from error
        with conn:
            conn.prepare_threshold = None
            yield conn

    def ask(self, make: Callable[[], Op[R]]) -> R:
        """Run an idempotent op, with retries: one that reads, or whose repetition changes nothing."""
        for left in range(_TRIES - 1, -1, -1):
            try:
                with self.connection() as conn:
                    return drive(conn, make())
            except psycopg.Error as error:
                if not (left and is_transient(error)):
                    raise translated(error, _TRIES - left) from error
        raise AssertionError("unreachable")

    def tell(self, op: Op[R]) -> R:
        """Run an op once, in one transaction."""
        try:
            with self.connection() as conn, transaction(conn):
                conn.execute(LOCK_LIMIT)
                return drive(conn, op)
        except psycopg.Error as error:
            raise translated(error, 1) from error
