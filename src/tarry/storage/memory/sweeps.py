"""The sweep of a queue in memory: record expired leases, bury messages without attempts left."""

from __future__ import annotations

from datetime import datetime

from tarry.core.events import EventKind
from tarry.core.sweeping import Swept
from tarry.storage.memory.queues import MemoryQueue
from tarry.storage.memory.rows import Row


def sweep(queue: MemoryQueue, limit: int, now: datetime) -> Swept:
    if queue.paused_at is not None:
        return Swept()
    due = [row for row in queue.rows.values() if row.due_at <= now and row.is_free(now)]
    stuck = [row for row in due if _is_lapsed(row) or row.is_exhausted(queue.settings, row.attempts_asked)]
    stuck.sort(key=lambda row: (-row.priority, row.due_at, row.version))
    expired = buried = 0
    for row in stuck[:limit]:
        if _is_lapsed(row):
            queue.note(EventKind.EXPIRED, row, now, leased=True)
            row.expired_at = now
            expired += 1
        if row.is_exhausted(queue.settings, row.attempts_asked):
            queue.bury(row, "exhausted", None, now)
            buried += 1
    # Recorded and buried messages are no longer found, so the next step may start from the beginning.
    return Swept(expired, buried, len(due), () if len(stuck) > limit else None)


def _is_lapsed(row: Row) -> bool:
    return row.token is not None and row.expired_at is None
