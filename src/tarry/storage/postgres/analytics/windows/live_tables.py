"""Live messages and dead letters for readers that need all of them, but not in one snapshot."""

import math
from itertools import pairwise
from typing import Any, LiteralString

from psycopg.sql import SQL, Composable, Literal

from tarry.core.journal.snapshots import QueueNote, TableRange
from tarry.storage.postgres.analytics.database import Role
from tarry.storage.postgres.schema_name import in_schema, schema_of
from tarry.storage.postgres.statement import Row, each, made, only_row

RANGE_ROWS = 100_000
"""Approximate rows of a range, which is fetched as a whole in a second or two."""
_SAMPLED_BLOCKS = 1_000
_LIVE: LiteralString = """
    select pg_current_snapshot()::text as snapshot, r.* from (select) one left join (
        select m.queue as queue_id, m.key::text as key, m.version, m.attempt, m.priority::int as priority, m.due_at,
            m.created_at, coalesce(m.max_attempts, q.max_attempts) as max_attempts
        from tarry.message m left join tarry.queue q on q.id = m.queue where {where}
    ) r on true
"""
_DEAD: LiteralString = """
    select pg_current_snapshot()::text as snapshot, r.* from (select) one left join (
        select m.queue as queue_id, m.key::text as key, m.version, m.died_at from tarry.dead_letter m where {where}
    ) r on true
"""
_RANGED: dict[str, tuple[LiteralString, LiteralString, LiteralString, LiteralString]] = {
    "messages": ("tarry.message", "analytics/windows/message_bounds", "m.key", _LIVE),
    "dead_letters": ("tarry.dead_letter", "analytics/windows/dead_letter_bounds", "m.version", _DEAD),
}


class PostgresLiveTables(Role):
    def ranges(self, table: str) -> list[TableRange]:
        """Live messages or dead letters in ranges of their key, each read by one short statement at its own time."""
        relation, bounds_of, key, columns = _RANGED[table]
        schema = schema_of(self._database.dsn)
        name = in_schema(relation, schema)
        size = self._database.fetch("analytics/windows/table_rows", only_row, relation=name)
        parts = math.ceil(size.rows / RANGE_ROWS)
        cuts: list[Any] = []
        if parts > 1:
            percent = min(100.0, 100 * _SAMPLED_BLOCKS / max(1, size.blocks))
            params = {"parts": parts, "percent": percent}
            cuts = [row.bound for row in self._database.fetch(bounds_of, list[Row], **params)]
        query = in_schema(columns, schema)
        ranges: list[TableRange] = []
        for low, high in pairwise([None, *cuts, None]):
            terms: list[Composable] = [SQL("true")]
            if low is not None:
                terms.append(SQL("{} >= {}").format(SQL(key), Literal(low)))
            if high is not None:
                terms.append(SQL("{} < {}").format(SQL(key), Literal(high)))
            text = SQL(query).format(where=SQL(" and ").join(terms)).as_string(None)
            ranges.append(TableRange(text, low, high))
        return ranges

    def queues(self) -> list[QueueNote]:
        return self._database.fetch("analytics/windows/queues", each(made(QueueNote)))
