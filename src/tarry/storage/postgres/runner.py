"""Where an op meets a socket, blocking and awaiting. Nothing is decided here."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from typing import Any, LiteralString, TypeVar

from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor
from psycopg.errors import LockNotAvailable
from psycopg.pq import Format, TransactionStatus
from psycopg.pq.abc import PGresult
from psycopg.rows import tuple_row

from tarry.core.errors import CommitLost
from tarry.storage.postgres.instants import read_in_utc
from tarry.storage.postgres.statement import Copy, Op, Row

R = TypeVar("R")
C = TypeVar("C", Cursor[Any], AsyncCursor[Any])


def drive(conn: Connection[Any], op: Op[R], *, guest: bool = False, notify: bool = True) -> R:
    """`guest`: on a connection that is not ours. There nothing is prepared: what a session prepared outlives the plan.

    A lock that is not granted is raised inside the op, unless a transaction has failed with it: where earlier steps have
    committed, only the op knows what to answer.
    """
    try:
        step = next(op)
        while True:
            try:
                with _ours(Cursor(conn, row_factory=tuple_row), guest=guest) as cursor:
                    if isinstance(step, Copy):
                        with cursor.copy(step.sql) as copy:
                            for block in step.blocks:
                                copy.write(block)
                        rows: list[Row] = []
                    else:
                        cursor.execute(_text(step.sql, notify), step.params, prepare=False if guest else None)
                        rows = cursor.fetchall() if _has_rows(cursor.pgresult) else []
            except LockNotAvailable as error:
                if conn.info.transaction_status != TransactionStatus.IDLE:
                    raise
                step = op.throw(error)
            else:
                step = op.send(rows)
    except StopIteration as stop:
        return stop.value


async def adrive(conn: AsyncConnection[Any], op: Op[R], *, guest: bool = False, notify: bool = True) -> R:
    try:
        step = next(op)
        while True:
            try:
                async with _ours(AsyncCursor(conn, row_factory=tuple_row), guest=guest) as cursor:
                    if isinstance(step, Copy):
                        async with cursor.copy(step.sql) as copy:
                            for block in step.blocks:
                                await copy.write(block)
                        rows: list[Row] = []
                    else:
                        await cursor.execute(_text(step.sql, notify), step.params, prepare=False if guest else None)
                        rows = await cursor.fetchall() if _has_rows(cursor.pgresult) else []
            except LockNotAvailable as error:
                if conn.info.transaction_status != TransactionStatus.IDLE:
                    raise
                step = op.throw(error)
            else:
                step = op.send(rows)
    except StopIteration as stop:
        return stop.value


def _text(sql: LiteralString, notify: bool) -> LiteralString:  # noqa: FBT001
    return sql if notify else silent(sql)


@cache
def silent(sql: LiteralString) -> LiteralString:
    """The same statement, which wakes no consumer: a transaction that has notified cannot be prepared (two-phase commit)."""
    return sql.replace("pg_notify('tarry', ", "concat(")


def _ours(cursor: C, *, guest: bool) -> C:
    """Made here, not by the connection: a caller's may make cursors that give dictionaries, or put values into the text."""
    cursor.format = Format.BINARY
    if guest:
        read_in_utc(cursor.adapters)
    return cursor


_BEGIN: LiteralString = "begin; set local statement_timeout = 0"
"""What takes several steps (bulk loads, purges, deletions) may take long; `statement_for` is for single statements."""
_BEGIN_BOUNDED: LiteralString = "begin; set local lock_timeout = '200ms'"
"""For a connection without session state (a pooler is between), in one round trip; else `connections._TUNE` has said it."""

_BEGIN_BRIEF: LiteralString = "begin; set local lock_timeout = '20ms'"
"""To find out by trying which of many items are blocked: each try that fails takes this long."""


@contextmanager
def transaction(conn: Connection[Any], *, bounded: bool = False) -> Generator[None]:
    """All or nothing. The driver reports success when the server answered COMMIT with ROLLBACK; this does not.

    `bounded`: with the `lock_timeout` that a session of our own has.
    """
    conn.execute(_BEGIN_BOUNDED if bounded else _BEGIN, prepare=False)
    try:
        yield
    except BaseException:
        conn.rollback()
        raise
    _check_commit(conn.execute("commit").statusmessage)


@asynccontextmanager
async def atransaction(
    conn: AsyncConnection[Any], *, bounded: bool = False, brief: bool = False
) -> AsyncGenerator[None]:
    """`brief`: waits for a lock for a few milliseconds only."""
    await conn.execute(_BEGIN_BRIEF if brief else _BEGIN_BOUNDED if bounded else _BEGIN, prepare=False)
    try:
        yield
    except BaseException:
        await conn.rollback()
        raise
    _check_commit((await conn.execute("commit")).statusmessage)


def _has_rows(result: PGresult | None) -> bool:
    """What `cursor.description` also says, without describing every column of every answer."""
    return result is not None and result.nfields > 0


def _check_commit(tag: str | None) -> None:
    if tag != "COMMIT":
        raise CommitLost(
            f"the database answered COMMIT with {tag}: nothing of this transaction was stored",
            hint="an error inside the transaction was swallowed; look for it in the server's log",
        )
