"""Dropping live messages, and redriving dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from tarry.core.events import EventKind
from tarry.storage.memory.queues import MemoryQueue
from tarry.storage.memory.rows import DeadRow, Row


def drop(queue: MemoryQueue, key: str, version: int | None, now: datetime, *, unless_leased: bool) -> bool:
    row = queue.rows.get(key)
    if row is None or (version is not None and row.version != version) or (unless_leased and not row.is_free(now)):
        return False
    queue.note(EventKind.DROPPED, row, now)
    queue.remove(row)
    return True


def redrive(queue: MemoryQueue, versions: Sequence[int] | None, limit: int, now: datetime) -> int:
    """Only where the key is free: of several dead letters of one key only the oldest is redriven."""
    chosen = queue.dead.keys() if versions is None else queue.dead.keys() & set(versions)
    moved = 0
    for dead in sorted((queue.dead[version] for version in chosen), key=lambda dead: dead.age_order):
        if moved >= limit:
            break
        moved += revive(queue, dead, now) is not None
    return moved


def revive(queue: MemoryQueue, dead: DeadRow, now: datetime, *, job: int | None = None) -> Row | None:
    """Redrive as a new ready version with attempts reset and a link to the old one; None if the key is live already."""
    if dead.row.key in queue.rows:
        return None
    row = replace(
        dead.row,
        version=queue.next_version(),
        planned_at=now,
        due_at=now,
        created_at=now,
        due_limit=None,
        attempt=0,
        last_error=None,
        expired_at=None,
        origin=dead.row.version,
    )
    del queue.dead[dead.row.version]
    queue.add(row)
    detail = {"from_version": dead.row.version} if job is None else {"from_version": dead.row.version, "job": job}
    queue.note(EventKind.REDRIVEN, row, now, detail=detail)
    return row
