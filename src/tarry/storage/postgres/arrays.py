"""Arrays and instants in PostgreSQL's binary format. Packing an array in one call costs a third of packing each value."""

import struct
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Generic, TypeVar

from psycopg import ProgrammingError
from psycopg.abc import AdaptContext, Buffer
from psycopg.adapt import AdaptersMap, Dumper, Loader, PyFormat
from psycopg.pq import Format

T = TypeVar("T")

EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
US = timedelta(microseconds=1)
"""The server counts instants in microseconds since 2000."""
MINUS_INFINITY = -(2**63)
_NULL = b"\xff\xff\xff\xff"
_unpack = struct.Struct(">q").unpack


class PgArray:
    """A one-dimensional array, ready for the wire."""

    __slots__ = ("data",)
    sql_type: ClassVar[str]
    oid: ClassVar[int]
    element_oid: ClassVar[int]

    def __init__(self, n: int, body: bytes) -> None:
        header = (
            struct.pack(">iiiii", 1, 1, self.element_oid, n, 1) if n else struct.pack(">iii", 0, 0, self.element_oid)
        )
        self.data = header + body


def _variable(values: Sequence[bytes | None]) -> bytes:
    pack = struct.Struct(">i").pack
    parts: list[bytes] = []
    for value in values:
        if value is None:
            parts.append(_NULL)
        else:
            parts.append(pack(len(value)))
            parts.append(value)
    return b"".join(parts)


def _fixed(code: str, width: int, values: Sequence[Any]) -> bytes:
    if None in values:
        pack = struct.Struct(f">i{code}").pack
        return b"".join(_NULL if value is None else pack(width, value) for value in values)
    flat: list[Any] = [width] * (2 * len(values))
    flat[1::2] = values
    return struct.pack(">" + f"i{code}" * len(values), *flat)


class TextArray(PgArray):
    sql_type, oid, element_oid = "text[]", 1009, 25

    def __init__(self, values: Sequence[str | None]) -> None:
        super().__init__(len(values), _variable([None if v is None else v.encode() for v in values]))


class ByteaArray(PgArray):
    sql_type, oid, element_oid = "bytea[]", 1001, 17

    def __init__(self, values: Sequence[bytes]) -> None:
        super().__init__(len(values), _variable(values))


class JsonbArray(PgArray):
    sql_type, oid, element_oid = "jsonb[]", 3807, 3802

    def __init__(self, values: Sequence[bytes | None]) -> None:
        super().__init__(len(values), _variable([None if v is None else b"\x01" + v for v in values]))


class TidArray(PgArray):
    sql_type, oid, element_oid = "tid[]", 1010, 27

    def __init__(self, values: Sequence[bytes]) -> None:
        super().__init__(len(values), b"".join([b"\x00\x00\x00\x06" + value for value in values]))


class TimestampArray(PgArray):
    sql_type, oid, element_oid = "timestamptz[]", 1185, 1184

    def __init__(self, values: Sequence[datetime | None], *, missing: int | None = None) -> None:
        """`missing` replaces None, in microseconds since 2000: `MINUS_INFINITY` has no Python value."""
        super().__init__(len(values), _fixed("q", 8, [missing if v is None else (v - EPOCH) // US for v in values]))


class _Numbers(PgArray, Generic[T]):
    code: ClassVar[str]
    """Format character of the `struct` module."""
    width: ClassVar[int]

    def __init__(self, values: Sequence[T]) -> None:
        super().__init__(len(values), _fixed(self.code, self.width, values))


class BigintArray(_Numbers[int]):
    sql_type, oid, element_oid, code, width = "bigint[]", 1016, 20, "q", 8


class IntArray(_Numbers[int | None]):
    sql_type, oid, element_oid, code, width = "int[]", 1007, 23, "i", 4


class SmallintArray(_Numbers[int]):
    sql_type, oid, element_oid, code, width = "smallint[]", 1005, 21, "h", 2


class FloatArray(_Numbers[float | None]):
    sql_type, oid, element_oid, code, width = "float8[]", 1022, 701, "d", 8


class BooleanArray(_Numbers[bool]):
    sql_type, oid, element_oid, code, width = "boolean[]", 1000, 16, "?", 1


ARRAYS: tuple[type[PgArray], ...] = (
    *(TextArray, ByteaArray, JsonbArray, TidArray, TimestampArray),
    *(BigintArray, IntArray, SmallintArray, FloatArray, BooleanArray),
)


class _ArrayDumper(Dumper):
    format = Format.BINARY

    def __init__(self, cls: type[PgArray], context: AdaptContext | None = None) -> None:
        super().__init__(cls, context)
        self.oid = cls.oid

    def dump(self, obj: PgArray) -> bytes:
        return obj.data


def register_array_dumpers(adapters: AdaptersMap) -> None:
    """Let a connection send these arrays. Only our own classes are registered: the owner's adapters stay as they are."""
    try:
        adapters.get_dumper(TextArray, PyFormat.BINARY)
    except ProgrammingError:  # not registered yet
        for kind in ARRAYS:
            adapters.register_dumper(kind, _ArrayDumper)


class _UtcLoader(Loader):
    format = Format.BINARY

    def load(self, data: Buffer) -> datetime:
        return EPOCH + timedelta(microseconds=_unpack(data)[0])


def read_in_utc(adapters: AdaptersMap) -> None:
    """Load instants in UTC instead of the session's time zone.

    Python compares and subtracts two datetimes of the same zone by wall clock, which is wrong in the hour that a zone repeats
    in autumn.
    """
    adapters.register_loader("timestamptz", _UtcLoader)
