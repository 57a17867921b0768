"""Runs the statements of an op on a connection. Decisions are made by the op. The blocking half is generated."""

import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, LiteralString, TypeGuard, TypeVar

from psycopg import AsyncConnection, AsyncCursor, Cursor
from psycopg.errors import LockNotAvailable
from psycopg.pq import Format, TransactionStatus
from psycopg.pq.abc import PGresult
from psycopg.types.numeric import FloatBinaryDumper, Int2BinaryDumper, Int4BinaryDumper, Int8BinaryDumper
from psycopg.types.string import BytesBinaryDumper, StrBinaryDumper

from tarry.core.errors import CommitLost
from tarry.storage.cancellations import cancellations
from tarry.storage.postgres.arrays import read_in_utc
from tarry.storage.postgres.prepared import session_of
from tarry.storage.postgres.schema_name import in_schema, schema_on
from tarry.storage.postgres.statement import Copy, Op, Row, Statement, row_maker

R = TypeVar("R")
AnyCursor = Cursor[Any] | AsyncCursor[Any]
C = TypeVar("C", bound=AnyCursor)


async def drive(
    conn: AsyncConnection[Any], op: Op[R], *, external: bool = False, notify: bool = True, schema: str | None = None
) -> R:
    """Run an op to completion.

    `external`: the connection is the caller's. Nothing is prepared on it, because it would stay in the session, and the store
    passes its `schema`, which is only attached to its own connections.

    A lock timeout is raised inside the op, unless it has aborted a transaction: if earlier steps have committed, the op
    decides the result.
    """
    session = None if external else session_of(conn)
    if True:  # ASYNC  # noqa: SIM108
        before = cancellations()
    else:
        before = sys.exception()
    try:
        step = next(op)
        while True:
            try:
                if session is not None and isinstance(step, Statement):
                    if True:  # ASYNC
                        rows = await conn.wait(session.execute(conn, step))
                    else:
                        rows = session.run(conn, step)
                else:
                    rows = await _with_cursor(conn, step, schema, external=external, notify=notify)
            except LockNotAvailable as error:
                if conn.info.transaction_status != TransactionStatus.IDLE or is_interrupted(error, before):
                    raise
                step = op.throw(error)
            else:
                step = op.send(rows)
    except StopIteration as stop:
        return stop.value


def is_interrupted(error: BaseException, before: Any) -> bool:
    """Whether the task was cancelled or Ctrl-C was pressed: the driver may raise the statement's error instead.

    `before`: the task's earlier cancellation count, or the exception already being handled (maybe an earlier Ctrl-C).
    """
    if True:  # ASYNC
        return cancellations() > before
    context = error.__context__
    while context is not None and context is not before:
        if isinstance(context, KeyboardInterrupt):
            return True
        context = context.__context__
    return False


_COPIED = (
    *((str, StrBinaryDumper), (bytes, BytesBinaryDumper), (float, FloatBinaryDumper)),
    *((int, Int2BinaryDumper), (int, Int4BinaryDumper), (int, Int8BinaryDumper)),
)


async def _with_cursor(
    conn: AsyncConnection[Any], step: Statement[Any] | Copy, schema: str | None, *, external: bool, notify: bool
) -> list[Row]:
    text = in_schema(step.sql if notify else silent(step.sql), schema or schema_on(conn))
    async with _ours(AsyncCursor(conn, row_factory=_named_rows), external=external) as cursor:
        if isinstance(step, Copy):
            async with cursor.copy(text) as copy:
                for kind, dumper in _COPIED:  # not those of the caller's connection for the same types
                    cursor.adapters.register_dumper(kind, dumper)
                copy.set_types(step.types)
                for row in step.rows:
                    if block := copy.formatter.write_row(row):  # empty until the buffer is full
                        await copy.writer.write(block)
            return []
        await cursor.execute(text, step.params, prepare=False)
        return await cursor.fetchall() if _has_rows(cursor.pgresult) else []


@cache
def silent(sql: LiteralString) -> LiteralString:
    """The statement without its notifications: a transaction with NOTIFY cannot be prepared for two-phase commit."""
    return sql.replace("pg_notify('tarry', ", "concat(").replace("tarry.notify_waiters(", "concat(")


def _ours(cursor: C, *, external: bool) -> C:
    """Set up a cursor. Not the connection's factory: a caller's cursors may return dictionaries or bind on the client."""
    cursor.format = Format.BINARY
    if external:
        read_in_utc(cursor.adapters)
    return cursor


_BEGIN: LiteralString = "begin; set local statement_timeout = 0"
"""Operations of several steps (bulk loads, purges, deletions) may take long; `statement_for` limits single statements."""
_BEGIN_BOUNDED: LiteralString = "begin; set local lock_timeout = '200ms'"
"""For a connection behind a pooler, in one round trip. On direct connections `connections._TUNE` has set the timeout."""

_BEGIN_BRIEF: LiteralString = "begin; set local lock_timeout = '20ms'"
"""For tries that show which of many items are blocked: each failed try takes this long."""


@asynccontextmanager
async def transaction(
    conn: AsyncConnection[Any], *, bounded: bool = False, brief: bool = False
) -> AsyncGenerator[None]:
    """A transaction. Unlike the driver's, it raises `CommitLost` if the server answers COMMIT with ROLLBACK.

    `bounded`: set the `lock_timeout` of a direct session; `brief`: wait for locks for a few milliseconds only.
    """
    await conn.execute(_BEGIN_BRIEF if brief else _BEGIN_BOUNDED if bounded else _BEGIN, prepare=False)
    try:
        yield
    except BaseException:
        await conn.rollback()
        raise
    _check_commit((await conn.execute("commit")).statusmessage)


def _named_rows(cursor: AnyCursor) -> Callable[[Sequence[Any]], Row]:
    return row_maker(cursor.pgresult) if _has_rows(cursor.pgresult) else tuple


def _has_rows(result: PGresult | None) -> TypeGuard[PGresult]:
    """Like `cursor.description is not None`, without describing every column of every result."""
    return result is not None and result.nfields > 0


def _check_commit(tag: str | None) -> None:
    if tag != "COMMIT":
        raise CommitLost(
            f"the database answered COMMIT with {tag}: nothing of this transaction was stored",
            hint="an error inside the transaction was swallowed; look for it in the server's log",
        )
