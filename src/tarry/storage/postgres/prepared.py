"""Statements on direct sessions, prepared once per session and sent without a cursor.

A driver cursor costs three times as much as the statement itself: with every call it translates the text, looks up the
statement and describes the result. Parameter types are taken from the casts in the text, so a statement is prepared once,
whichever parameters are null. Values of these types are packed here; the driver adapts all others.

Prepared statements are sent and awaited through libpq: the driver's generators cost as much as the rest of the client's work.
Everything else goes through `Connection.wait`. Both cancel an interrupted statement and wait until the server has stopped it.
"""

import re
import select
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cache
from itertools import count
from operator import attrgetter
from struct import Struct
from typing import Any, Final, LiteralString, NamedTuple

from psycopg import AsyncConnection, Connection, DatabaseError, Error, generators
from psycopg.abc import PQGen
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import FeatureNotSupported, InvalidSqlStatementName, OperationalError, error_from_result
from psycopg.pq import ExecStatus, Format, TransactionStatus
from psycopg.pq.abc import PGconn, PGresult

from tarry.storage.postgres.arrays import ARRAYS, EPOCH, US
from tarry.storage.postgres.schema_name import DEFAULT, in_schema, schema_on
from tarry.storage.postgres.statement import Row, Statement, row_maker

AnyConnection = Connection[Any] | AsyncConnection[Any]

MOST = 300
"""Prepared statements per session; further statements are planned with every call."""
_CHECK_EVERY_MS = 100
"""How often a wait for a reply checks whether another thread has closed the connection, as the driver does."""
_CANCEL_WITHIN_S = 5.0

_ATTRIBUTE = "_tarry_session"
_PARAMETER = re.compile(r"%\((\w+)\)s(?:::(\w+(?:\[\])?))?|%%")


class _Type(NamedTuple):
    """Encoding of a Python type as a server type."""

    oid: int
    kind: type[Any]
    encode: Callable[[Any], bytes]
    format: Format = Format.BINARY


def _interval(value: timedelta) -> bytes:
    return _INTERVAL(value.seconds * 1_000_000 + value.microseconds, value.days, 0)


def _timestamp(value: datetime) -> bytes:
    return _BIGINT((value - EPOCH) // US)


_BIGINT, _INTERVAL = Struct(">q").pack, Struct(">qii").pack
_UNNAMED: Final = _Type(0, str, str.encode, Format.TEXT)
"""Type of a parameter without a cast, which the server infers."""
_TYPES: Final[dict[str, _Type]] = {
    "text": _Type(25, str, str.encode),
    "bytea": _Type(17, bytes, bytes),
    "bigint": _Type(20, int, _BIGINT),
    "int": _Type(23, int, Struct(">i").pack),
    "smallint": _Type(21, int, Struct(">h").pack),
    "float8": _Type(701, float, Struct(">d").pack),
    "boolean": _Type(16, bool, Struct(">?").pack),
    "timestamptz": _Type(1184, datetime, _timestamp),
    "interval": _Type(1186, timedelta, _interval),
    "tid": _Type(27, str, str.encode, Format.TEXT),
    "jsonb": _Type(3802, str, str.encode, Format.TEXT),
}
_TYPES.update({kind.sql_type: _Type(kind.oid, kind, attrgetter("data")) for kind in ARRAYS})


class _Text:
    """A statement with numbered parameters, as it is sent to the server."""

    __slots__ = ("_encoders", "_is_known", "data", "formats", "names", "oids")

    def __init__(self, sql: str) -> None:
        casts: dict[str, str | None] = {}
        for name, cast in _PARAMETER.findall(sql):
            if name:
                casts[name] = casts.get(name) or cast or None
        self.names = [*casts]

        def numbered(match: re.Match[str]) -> str:
            name, cast = match[1], match[2]
            return "%" if name is None else f"${1 + self.names.index(name)}" + (f"::{cast}" if cast else "")

        self.data = _PARAMETER.sub(numbered, sql).encode()
        types = [_UNNAMED if cast is None else _TYPES.get(cast) for cast in casts.values()]
        known = [type_ for type_ in types if type_ is not None]
        self.oids = [type_.oid for type_ in known]
        self.formats = [type_.format for type_ in known]
        self._encoders = [(name, type_.kind, type_.encode) for name, type_ in zip(casts, known, strict=False)]
        self._is_known = len(known) == len(types)

    def encoded(self, params: Mapping[str, Any]) -> list[bytes | None] | None:
        """The encoded values; None if the driver must adapt one of them."""
        if not self._is_known:
            return None
        values: list[bytes | None] = []
        try:
            for name, kind, encode in self._encoders:
                if (value := params[name]) is None:
                    values.append(None)
                elif type(value) is kind:
                    values.append(encode(value))
                else:
                    return None
        except (TypeError, ValueError, struct.error):  # a naive datetime, or a number out of range
            return None
        return values


_text = cache(_Text)


class _Prepared:
    """A prepared statement: a text with one list of parameter types."""

    __slots__ = ("make", "name")

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.make: Callable[[Sequence[Any]], Row] | None = None
        """Creates its rows. The columns of a prepared statement never change."""


class PreparedStatements:
    """The prepared statements of a connection. Only one thread or task uses it at a time."""

    def __init__(self, conn: AnyConnection) -> None:
        schema = schema_on(conn)
        self._text: Callable[[LiteralString], _Text] = (
            _text if schema == DEFAULT else lambda sql: _text(in_schema(sql, schema))
        )
        self._pgconn = conn.pgconn
        self._dumps = Transformer(conn)
        self._loads = Transformer(conn)
        self._prepared: dict[tuple[_Text, tuple[int, ...]] | _Text, _Prepared] = {}
        self._numbers = count()
        """Numbers are never reused: a statement whose preparation was interrupted may exist on the server."""
        waiting = select.poll()
        waiting.register(conn.pgconn.socket, select.POLLIN)
        self._wait = waiting.poll

    def run(self, conn: Connection[Any], statement: Statement[Any]) -> list[Row]:
        text = self._text(statement.sql)
        prepared = self._prepared.get(text)
        values = None if prepared is None else text.encoded(statement.params)
        if prepared is None or values is None:
            return conn.wait(self.execute(conn, statement))
        pgconn = conn.pgconn
        try:
            pgconn.send_query_prepared(prepared.name, values, text.formats, Format.BINARY)
            # If the socket buffer was full, the driver sends the rest as the server reads.
            result = conn.wait(generators.execute(pgconn))[-1] if pgconn.flush() else self._result(pgconn)
        except (KeyboardInterrupt, SystemExit):
            _cancel(conn)
            raise
        return self._rows(prepared, result)

    def _result(self, pgconn: PGconn) -> PGresult:
        """Wait for the last result: a commit error follows the rows."""
        result = None
        try:
            while True:
                while pgconn.is_busy():
                    self._wait(_CHECK_EVERY_MS)
                    pgconn.consume_input()
                last, result = result, pgconn.get_result()
                if last is not None and result is None:
                    return last
        except DatabaseError:
            if result is None or result.status != ExecStatus.FATAL_ERROR:
                raise
            return result  # the reason why the server closed the connection

    def execute(self, conn: AnyConnection, statement: Statement[Any]) -> PQGen[list[Row]]:
        """The same as a generator for `conn.wait`. Prepares the statement if necessary."""
        text, params, pgconn = self._text(statement.sql), statement.params, conn.pgconn
        values = text.encoded(params)
        if values is None:
            names = text.names
            values = self._dumps.dump_sequence([params[name] for name in names], [PyFormat.AUTO] * len(names))
            types, formats = self._dumps.types or (), self._dumps.formats
            key = (text, types)
        else:
            types, formats, key = text.oids, text.formats, text
        prepared = self._prepared.get(key)
        if prepared is None:
            if len(self._prepared) >= MOST:
                pgconn.send_query_params(text.data, values, types, formats, Format.BINARY)
                return self._rows(_Prepared(b""), (yield from generators.execute(pgconn))[-1])
            prepared = _Prepared(b"tarry_%d" % next(self._numbers))
            pgconn.send_prepare(prepared.name, text.data, types)
            _check_prepared((yield from generators.execute(pgconn))[-1])
            self._prepared[key] = prepared
        pgconn.send_query_prepared(prepared.name, values, formats, Format.BINARY)
        return self._rows(prepared, (yield from generators.execute(pgconn))[-1])

    def _rows(self, prepared: _Prepared, result: PGresult) -> list[Row]:
        if result.status not in _GOOD:
            raise self._failure(prepared, result)
        if prepared.make is None:
            prepared.make = row_maker(result)
        self._loads.set_pgresult(result)
        try:
            return self._loads.load_rows(0, result.ntuples, prepared.make)
        finally:
            self._loads.set_pgresult(None)

    def _failure(self, prepared: _Prepared, result: PGresult) -> Error:
        error = error_from_result(result)
        if not prepared.name or not isinstance(error, (InvalidSqlStatementName, FeatureNotSupported)):
            return error
        # The statement was deallocated (DISCARD ALL, which also resets our settings), or a migration changed a column type.
        # Nothing was executed, and later statements would fail the same way: close the session; a new one replaces it.
        self._pgconn.finish()
        lost = OperationalError(f"the session has lost what it prepared: {error}")
        lost.__cause__ = error
        return lost


def _check_prepared(result: PGresult) -> None:
    if result.status != ExecStatus.COMMAND_OK:
        raise error_from_result(result)


_GOOD = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)


def _cancel(conn: Connection[Any]) -> None:
    """Cancel the running statement as `Connection.wait` does; otherwise the connection stays busy until it completes."""
    if conn.pgconn.transaction_status != TransactionStatus.ACTIVE:
        return
    with suppress(DatabaseError):
        conn.cancel_safe(timeout=_CANCEL_WITHIN_S)
        conn.wait(generators.fetch_many(conn.pgconn), timeout=_CANCEL_WITHIN_S)
    if conn.pgconn.transaction_status == TransactionStatus.ACTIVE:
        conn.pgconn.finish()  # the server did not stop the statement


def keep_session(conn: AnyConnection) -> None:
    """Attach prepared statements to a direct connection. They are stored on the connection and share its lifetime."""
    vars(conn)[_ATTRIBUTE] = PreparedStatements(conn)


def session_of(conn: AnyConnection) -> PreparedStatements | None:
    return vars(conn).get(_ATTRIBUTE)
