"""Queries of Spark tasks, composed at run time from columns, conditions and windows.

Names come from the lists below, values are literals quoted by the driver: COPY, which ADBC uses, supports no parameters.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, LiteralString

from psycopg import Connection, sql
from psycopg.sql import SQL, Composable, Composed, Literal

from tarry.core.errors import InvalidInput
from tarry.core.journal.snapshots import BEGINNING, ColumnCondition, Scan, Share, SharedQuery, Window
from tarry.storage.postgres._sync.runner import drive
from tarry.storage.postgres.schema_name import in_schema, schema_on
from tarry.storage.postgres.statement import Row, bind

SLICE_ROWS = 100_000
SLICE_BYTES = 32 * 2**20
"""A slice is fetched as a whole, so both limits bound a task's memory and the duration of its read."""
_GROUP_BITS = 14
_BLOCK = 8192


@dataclass(frozen=True, slots=True)
class _Table:
    source: LiteralString
    instant: LiteralString
    opaque: frozenset[str]
    """Columns that conditions cannot use: their text is not their value."""
    columns: dict[str, LiteralString]


def _columns(alias: LiteralString, names: LiteralString, **expressions: LiteralString) -> dict[str, LiteralString]:
    """Columns of the table `alias` under their own names, and others as expressions."""
    own: dict[str, LiteralString] = {name: alias + "." + name for name in names.split()}
    return own | expressions


_MESSAGE = _columns(
    "m",
    "key version attempt due_at type content_type payload",
    queue_id="m.queue",
    queue="q.name",
    priority="m.priority::int",
    headers="m.headers::text",
)
_TABLES = {
    "events": _Table(
        # A left join: without a column of the queue, PostgreSQL removes the join, also for the count.
        "tarry.event e left join tarry.queue q on q.id = e.queue",
        "e.at",
        frozenset({"payload_hash", "detail", "payload"}),
        _columns(
            "e",
            "id at key version attempt due_at leased_at lease_until consumer size payload_hash error payload",
            xid="e.xid::text::bigint",
            kind="e.kind::text",
            queue_id="e.queue",
            queue="q.name",
            priority="e.priority::int",
            detail="e.detail::text",
        ),
    ),
    "messages": _Table(
        "tarry.message m join tarry.queue q on q.id = m.queue",
        "m.created_at",
        frozenset({"headers", "payload"}),
        _MESSAGE
        | _columns(
            "m",
            "created_at last_error",
            state="tarry.message_state(m, statement_timestamp())",
            lease_until="nullif(m.lease_until, '-infinity')",
            consumer="case when m.token is not null then m.consumer end",
        ),
    ),
    "dead_letters": _Table(
        "tarry.dead_letter m join tarry.queue q on q.id = m.queue",
        "m.died_at",
        frozenset({"headers", "payload"}),
        _MESSAGE | _columns("m", "died_at reason error"),
    ),
}
_RELATIONS: dict[str, LiteralString] = {"messages": "tarry.message", "dead_letters": "tarry.dead_letter"}
_OPERATORS: dict[str, LiteralString] = {
    "EqualTo": "{} = {}",
    "LessThan": "{} < {}",
    "LessThanOrEqual": "{} <= {}",
    "GreaterThan": "{} > {}",
    "GreaterThanOrEqual": "{} >= {}",
    "In": "{} in ({})",
    "EqualNullSafe": "{} is not distinct from {}",
    "StringStartsWith": "starts_with({}, {})",
    "IsNull": "{} is null",
    "IsNotNull": "{} is not null",
}


def can_apply(table: str, condition: ColumnCondition) -> bool:
    """Whether PostgreSQL and Spark evaluate the condition identically."""
    known = _TABLES[table]
    if condition.operator not in _OPERATORS or (condition.operator == "In" and not condition.values):
        return False
    if condition.column not in known.columns or condition.column in known.opaque:
        return False
    if any(isinstance(value, str) and "\0" in value for value in condition.values):
        return False
    return condition.operator == "EqualNullSafe" or None not in condition.values


def event_reads(conn: Connection[Any], scan: Scan, window: Window, partitions: int | None) -> list[SharedQuery]:
    """Split the whole journal by blocks of its partitions, without reading rows; a window or a filtered part by counting."""
    if window.start != BEGINNING or not window.end.is_complete or scan.conditions:
        return [_counted(conn, scan, window, partitions)]
    schema = schema_on(conn)
    parts = drive(conn, bind("analytics/windows/journal_parts", list[Row], since=scan.since, until=scan.until).run())
    known, terms = _table(scan.table, schema), _window_terms(window)
    blocks = sum(part.blocks for part in parts)
    size = sum(part.table_blocks for part in parts) if "payload" in scan.columns else blocks
    n = partitions or size * _BLOCK / SLICE_BYTES
    reads: list[SharedQuery] = []
    for part in parts:
        own = replace(known, source=known.source.replace(in_schema("tarry.event", schema), part.relation, 1))
        if part.is_overflow:
            # Rows can move from the overflow to a new partition, so their number is compared.
            reads.append(_counted(conn, scan, window, partitions, own))
        else:
            # A partition is only dropped as a whole, and its rows never move: a task that finds it reads all of them.
            shares = math.ceil(n * part.blocks / blocks)
            reads.append(_in_blocks(own, scan, [*terms, *_terms(own, scan)], "e.ctid", part.blocks, shares))
    return reads


def _counted(
    conn: Connection[Any], scan: Scan, window: Window, partitions: int | None, known: _Table | None = None
) -> SharedQuery:
    """Ranges of ids with approximately equal row counts, found by counting the window once. Each share has its expected row
    count and its range of transactions, so that no task scans the share of another."""
    known = known or _table(scan.table, schema_on(conn))
    terms = [*_window_terms(window), *_terms(known, scan)]
    weight = SQL("coalesce(sum(octet_length(e.payload)), 0)" if "payload" in scan.columns else "0")
    query = SQL(
        "select e.id >> {}, count(*), {}, min(e.xid)::text::bigint, max(e.xid)::text::bigint "
        "from {} where {} group by 1 order by 1"
    ).format(Literal(_GROUP_BITS), weight, SQL(known.source), _all(terms))
    groups = conn.execute(query).fetchall()
    shares: list[Share] = []
    for share in _shares(groups, partitions):
        first, last = share[0][0] << _GROUP_BITS, ((share[-1][0] + 1) << _GROUP_BITS) - 1
        lowest, highest = min(group[3] for group in share), max(group[4] for group in share)
        own = f"share_id between {first} and {last} and share_xid between {lowest} and {highest}"
        shares.append(Share(own if len(groups) > len(share) else "true", sum(group[1] for group in share)))
    extra = SQL("e.id as share_id, e.xid::text::bigint as share_xid")
    return _shared(known, scan, terms, extra, shares)


def _shares(groups: Sequence[Sequence[Any]], partitions: int | None) -> list[list[Sequence[Any]]]:
    """Group neighbours until a share is full. With a number of partitions, that many shares of equal size."""
    total = sum(group[1] for group in groups)
    most_rows = SLICE_ROWS if partitions is None else math.ceil(total / partitions)
    shares: list[list[Sequence[Any]]] = []
    rows = size = 0
    for group in groups:
        full = rows + group[1] > most_rows or (partitions is None and size + group[2] > SLICE_BYTES)
        if not shares or (full and (partitions is None or len(shares) < partitions)):
            shares.append([])
            rows = size = 0
        shares[-1].append(group)
        rows, size = rows + group[1], size + group[2]
    return shares


def table_reads(conn: Connection[Any], scan: Scan, partitions: int | None) -> list[SharedQuery]:
    """Ranges of blocks. Each share reads the table in its own snapshot."""
    schema = schema_on(conn)
    known, relation = _table(scan.table, schema), in_schema(_RELATIONS[scan.table], schema)
    size = "pg_table_size(%(relation)s)" if "payload" in scan.columns else "pg_relation_size(%(relation)s)"
    row = conn.execute(
        SQL("select {}, pg_relation_size(%(relation)s)").format(SQL(size)), {"relation": relation}
    ).fetchone()
    total, heap = row or (0, 0)
    n = partitions or math.ceil(total / SLICE_BYTES)
    return [_in_blocks(known, scan, _terms(known, scan), "m.ctid", math.ceil(heap / _BLOCK), n)]


def _in_blocks(
    known: _Table, scan: Scan, terms: Sequence[Composable], ctid: LiteralString, blocks: int, n: int
) -> SharedQuery:
    n = max(1, min(blocks, n))
    cuts = [blocks * i // n for i in range(n)]
    # The last range has no end: the table may have grown.
    ends = [*(f" and share_ctid < '({cut},0)'::tid" for cut in cuts[1:]), ""]
    ranges = [Share(f"share_ctid >= '({cut},0)'::tid{end}") for cut, end in zip(cuts, ends, strict=True)]
    return _shared(known, scan, terms, SQL("{} as share_ctid").format(SQL(ctid)), ranges if n > 1 else [Share("true")])


@cache
def _table(name: str, schema: str) -> _Table:
    """The table with its schema name, set before conditions are added, whose values may look like that name."""
    known = _TABLES[name]
    columns = {column: in_schema(text, schema) for column, text in known.columns.items()}
    return replace(known, source=in_schema(known.source, schema), columns=columns)


def _shared(
    known: _Table, scan: Scan, terms: Sequence[Composable], extra: Composable, shares: Sequence[Share]
) -> SharedQuery:
    """PostgreSQL merges the outer query with the inner one: share conditions can use its indexes, and columns that only they
    use cost nothing."""
    columns = [SQL("{} as {}").format(SQL(known.columns[name]), sql.Identifier(name)) for name in scan.columns]
    query = SQL("select {} from {} where {}").format(SQL(", ").join([*columns, extra]), SQL(known.source), _all(terms))
    names = tuple(sql.Identifier(name).as_string(None) for name in scan.columns)
    return SharedQuery(query.as_string(None), names, tuple(shares))


def _all(terms: Sequence[Composable]) -> Composed:
    return SQL(" and ").join(terms) if terms else Composed([SQL("true")])


def _window_terms(window: Window) -> list[Composable]:
    until = SQL("{}::pg_snapshot").format(Literal(window.until))
    terms: list[Composable] = []
    if window.start != BEGINNING:
        since = SQL("{}::pg_snapshot").format(Literal(window.since))
        terms.append(SQL("e.xid::text::bigint >= {}").format(Literal(int(window.since.split(":")[0]))))
        terms.append(SQL("not pg_visible_in_snapshot(e.xid, {})").format(since))
    terms.append(SQL("pg_visible_in_snapshot(e.xid, {})").format(until))
    for mark, comparison in ((window.after, SQL(">")), (window.upto, SQL("<="))):
        if mark is not None:
            terms.append(
                SQL("(e.xid::text::bigint, e.id) {} ({}, {})").format(comparison, Literal(mark.xid), Literal(mark.id))
            )
    return terms


def _terms(known: _Table, scan: Scan) -> list[Composable]:
    terms: list[Composable] = []
    if scan.since is not None:
        terms.append(SQL("{} >= {}").format(SQL(known.instant), Literal(scan.since)))
    if scan.until is not None:
        terms.append(SQL("{} < {}").format(SQL(known.instant), Literal(scan.until)))
    for condition in scan.conditions:
        if not can_apply(scan.table, condition):
            raise InvalidInput(f"the database cannot decide on this condition: {condition}")
        terms.append(_term(SQL(known.columns[condition.column]), condition))
    return terms


def _term(column: Composable, condition: ColumnCondition) -> Composable:
    if any(isinstance(value, str) for value in condition.values):
        # Spark compares bytes; the collation of the database may differ.
        column = SQL('{} collate "C"').format(column)
    term = SQL(_OPERATORS[condition.operator]).format(column, SQL(", ").join(map(Literal, condition.values)))
    return SQL("not ({})").format(term) if condition.negated else term
