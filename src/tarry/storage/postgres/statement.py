"""SQL as values: a statement is text, parameters and a decoder; an op is a generator of statements."""

import re
from collections import namedtuple
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from typing import Any, Generic, LiteralString, TypeVar, cast

import msgspec
from psycopg.pq.abc import PGresult

R = TypeVar("R")

Row = Any
"""A named tuple with the columns of the statement: `row.key`. See `row_maker`."""
Op = Generator["Statement[Any] | Copy", Any, R]
"""Yields statements, receives their rows, returns R. Decisions that span several statements are made only here."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A step of an op that streams rows in binary format to the server instead of binding parameters."""

    sql: LiteralString
    types: Sequence[str]
    """Of the values. Instants are sent as `int8`, in microseconds since 2000, and jsonb as `bytea`: their own dumpers cost
    more than the rest of a row."""
    rows: Iterable[Sequence[Any]]

    def run(self) -> Op[None]:
        yield self


# Not frozen: that would double the construction time.
@dataclass(slots=True, eq=False)
class Statement(Generic[R]):
    sql: LiteralString
    params: Mapping[str, Any]
    decode: Callable[[list[Any]], R]

    def run(self) -> Op[R]:
        """For `yield from`, which keeps the result type that a bare `yield` would lose."""
        return self.decode((yield self))


def no_result(rows: list[Row]) -> None:
    """The decoder of a statement whose rows do not matter."""


def value(rows: list[Row]) -> Any:
    """The decoder of a statement that returns one row of one column."""
    return rows[0][0]


def only_row(rows: list[Row]) -> Row:
    """The decoder of a statement that returns one row."""
    return rows[0]


def value_or_none(rows: list[Row]) -> Any:
    """The decoder of a statement that returns at most one row, of one column."""
    return rows[0][0] if rows else None


def each(decode: Callable[[Row], R]) -> Callable[[list[Row]], list[R]]:
    """The decoder of a statement whose rows are decoded one by one."""
    return lambda rows: [decode(row) for row in rows]


def first(decode: Callable[[Row], R]) -> Callable[[list[Row]], R | None]:
    """The decoder of a statement that returns at most one row."""
    return lambda rows: decode(rows[0]) if rows else None


def made(kind: type[R]) -> Callable[[Row], R]:
    """The decoder of a row with the fields of `kind`. Texts and arrays become its enums, tuples and sets; named tuples with
    the same fields skip the names."""
    fields: Any = getattr(kind, "_fields", None)
    make: Any = getattr(kind, "_make", None)
    if fields is None:
        return lambda row: msgspec.convert(row._asdict(), kind)
    return lambda row: make(row) if row._fields == fields else kind(**row._asdict())


def bind(name: LiteralString, decode: Callable[[list[Row]], R] = no_result, /, **params: Any) -> Statement[R]:
    """The statement of a SQL file, see `sql`."""
    return Statement(sql(name), params, decode)


@cache
def sql(name: LiteralString) -> LiteralString:
    """The text of messages/sql/ack.sql for "messages/ack", without comments and indentation: psycopg caches only the
    translation of short texts.

    A line `-- include: messages/_conflict` stands for the text of that file. The rest of a line after `-- typed: ` is part of
    the variant "messages/poll:typed" only. The variant "messages/ack:one" takes values where the text takes arrays
    (`unnest(%(keys)s::text[], …)`), and leaves out the lines that end with `-- many`.
    """
    subject, _, verb = name.rpartition("/")
    verb, _, variant = verb.partition(":")
    text = files("tarry.storage.postgres").joinpath(subject, "sql", f"{verb}.sql").read_text(encoding="utf-8")
    if variant:
        text = text.replace(f"-- {variant}: ", "")
    if variant == "one":
        text = _ARRAYS.sub(lambda arrays: f"(values ({arrays[1].replace('[]', '')}))", _MANY.sub("", text))
    suffix = f":{variant}" if variant else ""
    text = _INCLUDE.sub(lambda line: sql(cast("LiteralString", line[1] + suffix)), text)
    lean = re.sub(r"\s+", " ", re.sub(r"--[^\n]*", "", text)).strip()
    return cast("LiteralString", lean)


_INCLUDE = re.compile(r"^ *-- include: (\S+)$", re.MULTILINE)
_MANY = re.compile(r"^.* -- many$", re.MULTILINE)
_ARRAYS = re.compile(r"unnest\(((?:%\(\w+\)s::\w+\[\],?\s*)+)\)")


def row_maker(result: PGresult) -> Callable[[Sequence[Any]], Row]:
    """A function that makes a named tuple from the values of a row."""
    row_type = _row_type(tuple([result.fname(i) for i in range(result.nfields)]))
    return partial(cast("Any", tuple).__new__, row_type)  # `_make` without a Python call per row


@cache
def _row_type(columns: tuple[bytes | None, ...]) -> Any:
    names = [(column or b"").decode() for column in columns]  # COPY columns have no names
    return namedtuple("Row", names, rename=True)  # pyright: ignore[reportUntypedNamedTuple]
