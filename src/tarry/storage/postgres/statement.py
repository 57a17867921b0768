"""SQL as values: a statement is text, parameters and a decoder; an op is a generator of statements."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Generic, LiteralString, TypeVar, cast

R = TypeVar("R")

Row = Sequence[Any]
Op = Generator["Statement[Any] | Copy", Any, R]
"""Yields statements, is sent their rows, returns R. The only place where a decision of several statements is made."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A step of an op that streams blocks to the server instead of binding parameters."""

    sql: LiteralString
    blocks: Iterable[bytes]

    def run(self) -> Op[None]:
        yield self


@dataclass(frozen=True, slots=True)
class Statement(Generic[R]):
    sql: LiteralString
    params: Mapping[str, Any]
    decode: Callable[[list[Row]], R]

    def run(self) -> Op[R]:
        """`yield from` keeps the type that a bare `yield` would lose."""
        return self.decode((yield self))


@cache
def sql(verb: LiteralString) -> LiteralString:
    """The text of `sql/<verb>.sql`, without comments and indentation: psycopg caches its translation only of short texts."""
    text = files("tarry.storage.postgres").joinpath("sql", f"{verb}.sql").read_text(encoding="utf-8")
    lean = re.sub(r"\s+", " ", re.sub(r"--[^\n]*", "", text)).strip()
    return cast("LiteralString", lean)
