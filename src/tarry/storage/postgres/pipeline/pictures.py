"""A snapshot of the live tables and the unarchived end of the journal, for `verify`."""

# pyright: basic
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from psycopg.sql import SQL, Literal

from tarry.core.errors import Refused, TarryError
from tarry.core.windows import BEGINNING, Edge, Picture, QueueNote
from tarry.storage.postgres.pipeline import arrow
from tarry.storage.postgres.pipeline.reach import Reach

MOST_TAIL_ROWS = 5_000_000
"""Fits into the driver's memory; a longer tail means that the archive job has not run for a long time."""

PIECE_ROWS = 200_000
"""About a second: no statement here reads the journal for longer."""

_LIVE = """
    select m.queue as queue_id, m.key, m.version, m.attempt, m.priority::int as priority, m.due_at, m.created_at,
        coalesce(m.max_attempts, q.max_attempts) as max_attempts
    from tarry.message m left join tarry.queue q on q.id = m.queue
"""
_DEAD = "select queue as queue_id, key, version, died_at from tarry.dead_letter"
_TAIL_COLUMNS = """
    e.id, e.kind::text as kind, e.queue as queue_id, e.key, e.version, e.attempt, e.priority::int as priority,
    e.due_at, (e.detail ->> 'from_version')::bigint as from_version, e.detail ->> 'journal' as journal
"""
_TAIL = """
    from tarry.event e
    where pg_visible_in_snapshot(e.xid, {until}::pg_snapshot)
        and not (pg_visible_in_snapshot(e.xid, {base}::pg_snapshot)
            or ({partial} and pg_visible_in_snapshot(e.xid, {snapshot}::pg_snapshot)
                and (e.xid::text::bigint, e.id) <= ({xid}, {id})))
        and e.xid::text::bigint >= {oldest}
"""
_TAIL_BOUNDS = "count(*) as rows, min(e.xid::text::bigint) as first, max(e.xid::text::bigint) as last"
_QUEUES = "select id, name, journal::text as journal from tarry.queue"


def picture(reach: Reach, edge: Edge) -> Picture:
    with arrow.connection(reach.dsn, autocommit=False) as conn, conn.cursor() as cursor:
        cursor.execute("set transaction isolation level repeatable read, read only")
        until = _read(cursor, "select pg_current_snapshot()::text as until").column("until")[0].as_py()
        live, dead = _read(cursor, _LIVE), _read(cursor, _DEAD)
        queues = tuple(QueueNote(**row) for row in _read(cursor, _QUEUES).to_pylist())
    return Picture(live=live, dead=dead, tail=_tail(reach, edge, until), queues=queues)


def _tail(reach: Reach, edge: Edge, until: str) -> Any:
    """The events of the snapshot. Events are immutable, so they are read later in pieces, without keeping it open."""
    base = edge.base or edge.snapshot
    tail = SQL(_TAIL).format(
        until=Literal(until),
        base=Literal(base),
        snapshot=Literal(edge.snapshot),
        partial=Literal(not edge.is_complete),
        xid=Literal(edge.mark.xid if edge.mark else 0),
        id=Literal(edge.mark.id if edge.mark else 0),
        oldest=Literal(0 if edge == BEGINNING else int(base.split(":")[0])),
    )
    text = tail.as_string(None)
    with arrow.connection(reach.dsn) as conn, conn.cursor() as cursor:
        (bounds,) = _read(cursor, f"select {_TAIL_BOUNDS}{text}").to_pylist()
        rows, first, last = bounds["rows"], bounds["first"] or 0, bounds["last"] or 0
        if rows > MOST_TAIL_ROWS:
            raise Refused(
                f"{rows:,} events are not archived yet, too many to verify at once",
                hint="run first: tarry pipeline archive",
            )
        width = math.ceil((last - first + 1) / max(1, math.ceil(rows / PIECE_ROWS)))
        pieces = [
            _read(cursor, f"select {_TAIL_COLUMNS}{text} and e.xid::text::bigint between {at} and {at + width - 1}")
            for at in range(first, last + 1, width)
        ]
    return _joined(pieces, rows)


def _joined(pieces: Sequence[Any], rows: int) -> Any:
    import pyarrow as pa

    table = pa.concat_tables(pieces)
    if table.num_rows != rows:
        raise TarryError(
            f"the journal changed while it was read: {table.num_rows} rows where {rows} were counted",
            hint="was it pruned at the same time? verify again",
        )
    return table


def _read(cursor: Any, query: str) -> Any:
    cursor.execute(query)
    return arrow.plain(cursor.fetch_arrow_table())
