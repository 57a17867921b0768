"""The caller's own connection, for `conn=`: blocking or awaiting, as the store under test wants it."""

from __future__ import annotations

from typing import Any, LiteralString

import psycopg

from tests.kit.blocking import Loop


class Caller:
    """A connection with a transaction open. `conn` is what goes to the verbs."""

    def __init__(self, dsn: str, loop: Loop | None, *, autocommit: bool = False) -> None:
        self._loop = loop
        self.conn: Any = (
            psycopg.connect(dsn, autocommit=autocommit)
            if loop is None
            else loop.run(psycopg.AsyncConnection.connect(dsn, autocommit=autocommit))
        )

    def execute(self, query: LiteralString, *params: Any) -> list[Any]:
        cursor = self._done(self.conn.execute(query, params))
        return self._done(cursor.fetchall()) if cursor.description else []

    def commit(self) -> None:
        self._done(self.conn.commit())

    def rollback(self) -> None:
        self._done(self.conn.rollback())

    def close(self) -> None:
        self._done(self.conn.close())

    def _done(self, result: Any) -> Any:
        return result if self._loop is None else self._loop.run(result)
