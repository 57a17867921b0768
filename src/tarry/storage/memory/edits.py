"""Edits of a message."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tarry.core.editing import Edit
from tarry.core.events import EventKind
from tarry.core.limits import clip_error
from tarry.core.outcomes import Edited
from tarry.core.retry import Retry
from tarry.storage.memory.queues import MemoryQueue
from tarry.storage.memory.rows import copied


def edit(queue: MemoryQueue, key: str, edit: Edit, version: int | None, now: datetime, *, force: bool) -> Edited:
    row = queue.rows.get(key)
    if row is None:
        return Edited.GONE
    wished = _wished(edit, now)
    if all(_alike(getattr(row, name), value) for name, value in wished.items()):
        return Edited.IGNORED
    if version is not None and row.version != version:
        return Edited.CHANGED
    held = not row.is_free(now)
    if held and not force:
        return Edited.LEASED
    if "due_at" in wished:
        wished |= {"planned_at": wished["due_at"], "due_limit": None}
    edited = replace(row, version=queue.next_version(), attempt=row.attempt - held, expired_at=None, **wished)
    edited.let_go()
    queue.add(edited)
    queue.note(EventKind.EDITED, edited, now, detail=edit.detail)
    return Edited.UPDATED


def give_up(
    queue: MemoryQueue, key: str, error: str | None, version: int | None, now: datetime, *, force: bool
) -> Edited:
    row = queue.rows.get(key)
    if row is None:
        return Edited.GONE
    if version is not None and row.version != version:
        return Edited.CHANGED
    if not row.is_free(now) and not force:
        return Edited.LEASED
    row.let_go()  # the holder of the lease is not involved
    queue.bury(row, "buried", None if error is None else clip_error(error), now)
    return Edited.UPDATED


def _alike(found: Any, wished: Any) -> bool:
    """Compare without `max_attempts`, which is a separate field."""
    if isinstance(found, Retry) and isinstance(wished, Retry):
        return replace(found, max_attempts=None) == replace(wished, max_attempts=None)
    return found == wished


def _wished(edit: Edit, now: datetime) -> dict[str, Any]:
    """The row's fields after the edit."""
    wished: dict[str, Any] = {name: getattr(edit, name) for name in edit.named}
    if "payload" in wished:
        wished["content_type"] = edit.content_type
    if "headers" in wished:
        wished["headers"] = copied(edit.headers)
    if "due_at" in wished:
        wished["due_at"] = (
            edit.due_at.astimezone(UTC) if edit.due_at is not None else now + (edit.delay or timedelta(0))
        )
    return wished
