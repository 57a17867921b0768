"""One instant of the live tables and of the end of the journal, for `verify`."""

# pyright: basic
from __future__ import annotations

from typing import Any

from psycopg.sql import SQL, Literal

from tarry.core.errors import Refused
from tarry.core.windows import BEGINNING, Edge, Picture, QueueNote
from tarry.storage.postgres.pipeline import arrow
from tarry.storage.postgres.pipeline.reach import Reach

MOST_TAIL_ROWS = 5_000_000
"""What fits into the driver's memory without a thought; whoever has more has not archived for a long time."""

_LIVE = """
    select m.queue as queue_id, m.key, m.version, m.attempt, m.priority::int as priority, m.due_at, m.created_at,
        coalesce(m.max_attempts, q.max_attempts) as max_attempts
    from tarry.message m left join tarry.queue q on q.id = m.queue
"""
_DEAD = "select queue as queue_id, key, version, died_at from tarry.dead_letter"
_TAIL = """
    select e.id, e.kind::text as kind, e.queue as queue_id, e.key, e.version, e.attempt, e.priority::int as priority,
        e.due_at, (e.detail ->> 'from_version')::bigint as from_version, e.detail ->> 'journal' as journal
    from tarry.event e
    where not (pg_visible_in_snapshot(e.xid, {base}::pg_snapshot)
        or ({partial} and pg_visible_in_snapshot(e.xid, {snapshot}::pg_snapshot)
            and (e.xid::text::bigint, e.id) <= ({xid}, {id})))
"""
_QUEUES = "select id, name, journal::text as journal from tarry.queue"


def picture(reach: Reach, edge: Edge) -> Picture:
    """Everything in one short transaction that reads one snapshot."""
    tail = SQL(_TAIL).format(
        base=Literal(edge.base or edge.snapshot),
        snapshot=Literal(edge.snapshot),
        partial=Literal(not edge.is_complete),
        xid=Literal(edge.mark.xid if edge.mark else 0),
        id=Literal(edge.mark.id if edge.mark else 0),
    )
    xmin = SQL(" and e.xid::text::bigint >= {}").format(Literal(int((edge.base or edge.snapshot).split(":")[0])))
    query = (tail if edge == BEGINNING else tail + xmin).as_string(None)
    with arrow.connection(reach.dsn, autocommit=False) as conn, conn.cursor() as cursor:
        cursor.execute("set transaction isolation level repeatable read, read only")
        rows = _read(cursor, f"select count(*) as n from ({query}) tail").column("n")[0].as_py()  # noqa: S608
        if rows > MOST_TAIL_ROWS:
            raise Refused(
                f"{rows:,} events are not archived yet, too many to verify at once",
                hint="run first: tarry pipeline archive",
            )
        return Picture(
            live=_read(cursor, _LIVE),
            dead=_read(cursor, _DEAD),
            tail=_read(cursor, query),
            queues=tuple(QueueNote(**row) for row in _read(cursor, _QUEUES).to_pylist()),
        )


def _read(cursor: Any, query: str) -> Any:
    cursor.execute(query)
    return arrow.plain(cursor.fetch_arrow_table())
