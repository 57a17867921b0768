"""Database access of the pipeline: one connection per operation, or one that is kept."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg import Connection

from tarry.storage.postgres._sync.runner import drive, transaction
from tarry.storage.postgres.arrays import register_array_dumpers
from tarry.storage.postgres.connections import opened
from tarry.storage.postgres.errors import is_transient, translated
from tarry.storage.postgres.statement import Op, Row, bind, no_result

R = TypeVar("R")

_TRIES = 3
LOCK_LIMIT: LiteralString = "set local lock_timeout = '5min'"
"""Longer than the timeout of a store: jobs wait for each other's merges. Per transaction, for poolers."""


class Database:
    """Connection factory. No pool: jobs have few operations, and no connection may stay open while Spark works."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn

    @contextmanager
    def connection(self) -> Generator[Connection[Any]]:
        """A connection in autocommit mode, without prepared statements."""
        with opened(self.dsn) as conn:
            register_array_dumpers(conn.adapters)
            yield conn

    def query(self, make: Callable[[], Op[R]]) -> R:
        """Run an operation that only reads or may be repeated, with retries."""
        for left in range(_TRIES - 1, -1, -1):
            try:
                with self.connection() as conn:
                    return drive(conn, make())
            except psycopg.Error as error:
                if not (left and is_transient(error)):
                    raise translated(error, _TRIES - left) from error
        raise AssertionError("unreachable")

    def transact(self, op: Op[R]) -> R:
        """Run an operation once, in one transaction."""
        try:
            with self.connection() as conn, transaction(conn):
                conn.execute(LOCK_LIMIT)
                return drive(conn, op)
        except psycopg.Error as error:
            raise translated(error, 1) from error

    def fetch(self, verb: LiteralString, decode: Callable[[list[Row]], R], **params: Any) -> R:
        """Run one idempotent statement, with retries."""
        return self.query(bind(verb, decode, **params).run)

    def write(self, verb: LiteralString, decode: Callable[[list[Row]], R] = no_result, **params: Any) -> R:
        """Run one statement once, in a transaction."""
        return self.transact(bind(verb, decode, **params).run())


class KeptDatabase(Database):
    """Keeps its connection between operations, for a thread that polls; an error closes it. It holds no snapshot."""

    _kept: Connection[Any] | None = None

    @contextmanager
    def connection(self) -> Generator[Connection[Any]]:
        conn, self._kept = self._kept, None
        if conn is None or conn.closed:
            conn = opened(self.dsn)
            register_array_dumpers(conn.adapters)
        try:
            yield conn
        except BaseException:
            conn.close()
            raise
        self._kept = conn

    def close(self) -> None:
        if self._kept is not None:
            self._kept.close()


class Role:
    """A part of the pipeline's store. Its methods are short transactions."""

    def __init__(self, database: Database) -> None:
        self._database = database
