"""Binary COPY into the staging table: rows are packed in the task; the server only stores them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tarry.core.analytics.bulk_offer import StagedRow
from tarry.storage.postgres.statement import Copy

_EPOCH_US = 946_684_800_000_000
"""PostgreSQL timestamps count from 2000, Unix time from 1970."""
_TYPES = (
    "int8", "int4", "int4", "int2", "int8", "float8", "int4",
    "text", "text", "bytea", "text", "text", "bytea", "bool",
)  # fmt: skip


@dataclass(slots=True)
class StagedTotals:
    """Statistics of the rows that were sent."""

    rows: int = 0
    size: int = 0
    queues: set[str] = field(default_factory=set[str])
    first: str | None = None
    last: str | None = None


def copy_rows(attempt: int, part: int, rows: Iterable[StagedRow], totals: StagedTotals) -> Copy:
    return Copy(
        "copy tarry.sink_row (attempt, part, seq, priority, due_at, after_s, max_attempts, queue, key, payload, "
        "content_type, type, headers, generated) from stdin (format binary)",
        _TYPES,
        _counted(attempt, part, rows, totals),
    )


def _counted(attempt: int, part: int, rows: Iterable[StagedRow], totals: StagedTotals) -> Iterator[tuple[Any, ...]]:
    position, size, first, last = totals.rows, totals.size, totals.first, totals.last
    for queue, key, payload, content_type, due_us, after_s, priority, type_name, headers, attempts, generated in rows:
        if first is None or key < first:
            first = key
        if last is None or key > last:
            last = key
        totals.queues.add(queue)
        size += len(key.encode()) + len(payload)
        due, after = (None, after_s or 0.0) if due_us is None else (due_us - _EPOCH_US, None)
        stored = None if headers is None else b"\x01" + headers  # version 1 of jsonb's binary format
        yield (
            attempt, part, position, priority, due, after, attempts,
            queue, key, payload, content_type, type_name, stored, generated,
        )  # fmt: skip
        position += 1
    totals.rows, totals.size, totals.first, totals.last = position, size, first, last
