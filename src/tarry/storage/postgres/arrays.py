"""Arrays as PostgreSQL wants them on the wire. Packing a column at once costs a third of adapting its values one by one."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar
from uuid import UUID

from psycopg.adapt import AdaptersMap, Dumper, PyFormat
from psycopg.pq import Format

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)
MINUS_INFINITY = -(2**63)
_NULL = b"\xff\xff\xff\xff"


class PgArray:
    """A one-dimensional array, ready for the wire."""

    __slots__ = ("data",)
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
        one = struct.Struct(f">i{code}").pack
        return b"".join(_NULL if value is None else one(width, value) for value in values)
    flat: list[Any] = [width] * (2 * len(values))
    flat[1::2] = values
    return struct.pack(">" + f"i{code}" * len(values), *flat)


class TextArray(PgArray):
    oid, element_oid = 1009, 25

    def __init__(self, values: Sequence[str | None]) -> None:
        super().__init__(len(values), _variable([None if v is None else v.encode() for v in values]))


class ByteaArray(PgArray):
    oid, element_oid = 1001, 17

    def __init__(self, values: Sequence[bytes]) -> None:
        super().__init__(len(values), _variable(values))


class JsonbArray(PgArray):
    oid, element_oid = 3807, 3802

    def __init__(self, values: Sequence[bytes | None]) -> None:
        super().__init__(len(values), _variable([None if v is None else b"\x01" + v for v in values]))


class UuidArray(PgArray):
    oid, element_oid = 2951, 2950

    def __init__(self, values: Sequence[UUID]) -> None:
        super().__init__(len(values), _variable([v.bytes for v in values]))


class TimestampArray(PgArray):
    oid, element_oid = 1185, 1184

    def __init__(self, values: Sequence[datetime | None], *, missing: int | None = None) -> None:
        """`missing` stands in for None, in microseconds since 2000: `MINUS_INFINITY` is what Python cannot say."""
        super().__init__(len(values), _fixed("q", 8, [missing if v is None else (v - _EPOCH) // _US for v in values]))


class BigintArray(PgArray):
    oid, element_oid = 1016, 20

    def __init__(self, values: Sequence[int]) -> None:
        super().__init__(len(values), _fixed("q", 8, values))


class IntArray(PgArray):
    oid, element_oid = 1007, 23

    def __init__(self, values: Sequence[int | None]) -> None:
        super().__init__(len(values), _fixed("i", 4, values))


class SmallintArray(PgArray):
    oid, element_oid = 1005, 21

    def __init__(self, values: Sequence[int]) -> None:
        super().__init__(len(values), _fixed("h", 2, values))


class FloatArray(PgArray):
    oid, element_oid = 1022, 701

    def __init__(self, values: Sequence[float | None]) -> None:
        super().__init__(len(values), _fixed("d", 8, values))


class BooleanArray(PgArray):
    oid, element_oid = 1000, 16

    def __init__(self, values: Sequence[bool]) -> None:
        super().__init__(len(values), _fixed("?", 1, values))


class _ArrayDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: PgArray) -> bytes:
        return obj.data


def _dumper_of(kind: type[PgArray]) -> type[Dumper]:
    return type(f"{kind.__name__}Dumper", (_ArrayDumper,), {"oid": kind.oid})


_DUMPERS = {kind: _dumper_of(kind) for kind in PgArray.__subclasses__()}


def teach(adapters: AdaptersMap) -> None:
    """Let a connection send these arrays. They are our own classes, so nothing of the connection's owner changes."""
    try:
        adapters.get_dumper(TextArray, PyFormat.BINARY)
    except Exception:  # psycopg.ProgrammingError: it has not met us yet
        for kind, dumper in _DUMPERS.items():
            adapters.register_dumper(kind, dumper)
