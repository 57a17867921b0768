"""What the planner makes of our statements: the plan that a connection of ours keeps, and that of any other connection."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from psycopg import Connection, sql

from tarry.storage.postgres._sync.runner import drive
from tarry.storage.postgres.statement import Statement

_PARAMETER = re.compile(r"%\((\w+)\)s")


@dataclass(frozen=True, slots=True)
class Node:
    """One node of a plan. Numbers of rows are there only if the statement was run."""

    facts: dict[str, Any]

    @property
    def kind(self) -> str:
        return self.facts["Node Type"]

    @property
    def table(self) -> str | None:
        return self.facts.get("Relation Name")

    @property
    def way(self) -> str:
        """The index it goes by, else the kind of scan it is. A bitmap is another way to go by an index."""
        if self.kind == "Bitmap Heap Scan":
            return next(
                below["Index Name"] for below in self.facts["Plans"] if below["Node Type"] == "Bitmap Index Scan"
            )
        return self.facts.get("Index Name", self.kind)

    @property
    def is_scan(self) -> bool:
        return "Scan" in self.kind and self.table is not None

    @property
    def rows(self) -> float:
        """Every row it looked at, kept or not."""
        dropped = self.facts.get("Rows Removed by Filter", 0) + self.facts.get("Rows Removed by Index Recheck", 0)
        return self.facts["Actual Loops"] * (self.facts["Actual Rows"] + dropped)


@dataclass(frozen=True, slots=True)
class Plan:
    root: dict[str, Any]

    def nodes(self) -> Iterator[Node]:
        waiting = [self.root]
        while waiting:
            facts = waiting.pop()
            waiting += facts.get("Plans", [])
            yield Node(facts)

    def scans(self, table: str = "message") -> list[Node]:
        return [node for node in self.nodes() if node.is_scan and node.table == table]

    def ways(self, table: str = "message") -> set[str]:
        """How rows of a table are reached: the names of indexes, and the kinds of scan that use none."""
        return {node.way for node in self.scans(table)}

    def rows(self, table: str = "message") -> float:
        return sum(node.rows for node in self.scans(table))

    @property
    def buffers(self) -> int:
        return self.root["Shared Hit Blocks"] + self.root["Shared Read Blocks"]


def fresh(conn: Connection[Any], statement: Statement[Any], *, run: bool = False) -> Plan:
    """Planned now, with the parameters known: what a pooled connection, or the caller's own, does every time."""
    options = "analyze, buffers, timing off, format json" if run else "format json"
    rows = conn.execute(f"explain ({options}) {statement.sql}", statement.params, prepare=False)  # pyright: ignore[reportArgumentType, reportCallIssue]
    return _plan(rows.fetchone())


def kept(conn: Connection[Any], statement: Statement[Any], *, run: bool = False) -> Plan:
    """The plan that this connection has prepared for the statement, and goes on using."""
    name, types = _prepared(conn, statement)
    options = sql.SQL("analyze, buffers, timing off, format json" if run else "format json")
    arguments = [_literal(conn, statement.params[p], t) for p, t in zip(_parameters(statement), types, strict=True)]
    call = sql.SQL("explain ({}) execute {} ({})").format(options, sql.Identifier(name), sql.SQL(", ").join(arguments))
    return _plan(conn.execute(call, prepare=False).fetchone())


def prepare(conn: Connection[Any], statement: Statement[Any]) -> None:
    """Run it as the store does, so that the connection has a plan of it, and undo what it did."""
    with undone(conn):
        drive(conn, statement.run())


@contextmanager
def undone(conn: Connection[Any]) -> Generator[None]:
    """Past the driver, which forgets all prepared statements when it sees a ROLLBACK."""
    conn.pgconn.exec_(b"begin")
    try:
        yield
    finally:
        conn.pgconn.exec_(b"rollback")


def _prepared(conn: Connection[Any], statement: Statement[Any]) -> tuple[str, list[str]]:
    text = _PARAMETER.sub(lambda match: f"${1 + _parameters(statement).index(match[1])}", statement.sql)
    query = "select name, parameter_types::text[] from pg_prepared_statements where statement = %s"
    row = conn.execute(query, (text,), prepare=False).fetchone()
    assert row is not None, "this connection has not prepared the statement"
    return row


def _parameters(statement: Statement[Any]) -> list[str]:
    return list(dict.fromkeys(_PARAMETER.findall(statement.sql)))


def _literal(conn: Connection[Any], value: Any, type_name: str) -> sql.Composable:
    """The value as SQL text, in the words of the server itself: an argument of EXECUTE cannot be bound."""
    kind = sql.SQL(type_name)  # pyright: ignore[reportArgumentType]
    row = conn.execute(sql.SQL("select (%s::{})::text").format(kind), (value,), prepare=False).fetchone()
    assert row is not None
    return sql.SQL("{}::{}").format(sql.Literal(row[0]), kind)


def _plan(row: Any) -> Plan:
    return Plan(row[0][0]["Plan"])
