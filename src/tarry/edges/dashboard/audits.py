"""What the audit has of a page: the actors that paused a queue or a schedule, or changed a message."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from tarry.core.journal.events import Event, EventKind
from tarry.core.security.audit import Audited
from tarry.edges.dashboard.screen import View
from tarry.wire.ids import MessageId, parse_schedule_id

NEWEST = 500
"""Rows in which actions on a message are searched: they have no index."""
_NEWEST_S = 10.0
_PAUSES = 200
_PAUSES_S = 60.0
"""Many rows of the audit are read to find these."""
_BEFORE = timedelta(minutes=1)
"""A row is written before its action is tried."""
_BY_OPERATORS = frozenset(
    {EventKind.OFFERED, EventKind.UPDATED, EventKind.EDITED, EventKind.RELEASED, EventKind.BURIED, EventKind.DROPPED}
)


async def paused_by(view: View, paused_at: Mapping[str, datetime]) -> dict[str, str]:
    """The actors, by the names of what is paused; for visitors that may read the audit."""
    if not paused_at or not view.may("admin"):
        return {}
    store = view.app.store
    rows = await view.dashboard.remembered.get(
        "pauses", _PAUSES_S, lambda: store.run(store.security.audits(limit=_PAUSES, action="pause"))
    )
    return {
        name: row.actor
        for row in reversed(rows)
        if row.status is None or row.status < 400
        for name in _names(row)
        if name in paused_at and row.at <= paused_at[name] <= row.at + _BEFORE
    }


async def done_to(view: View, queue: str, key: str) -> list[Audited]:
    """Actions on a message among the newest of all, for visitors that may read the audit."""
    if not view.may("admin"):
        return []
    store, id = view.app.store, str(MessageId(queue, key))
    rows = await view.dashboard.remembered.get(
        "audits", _NEWEST_S, lambda: store.run(store.security.audits(limit=NEWEST))
    )
    return [row for row in rows if (row.queue == queue and key in _keys(row)) or id in _path(row).values()]


def operators(rows: Sequence[Audited], events: Sequence[Event]) -> dict[int, str]:
    """The actors by the ids of events: of each action that was done, the first event after its row."""
    actors: dict[int, str] = {}
    for row in rows:
        if row.status is None or row.status < 400:
            caused = next((event for event in events if row.at <= event.at <= row.at + _BEFORE), None)
            if caused is not None and caused.kind in _BY_OPERATORS and caused.consumer != row.actor:
                actors[caused.id] = row.actor
    return actors


def _names(row: Audited) -> Iterator[str]:
    """Of the broker and the dashboard the path has it, of the command line an option."""
    detail, path = row.detail or {}, _path(row)
    for name in (path.get("queue"), parse_schedule_id(path.get("schedule", "")), detail.get("name")):
        if isinstance(name, str):
            yield name


def _keys(row: Audited) -> tuple[Any, ...]:
    detail: Mapping[str, Any] = row.detail or {}
    form: Mapping[str, Any] = detail.get("form") or {}
    return form.get("key"), detail.get("key")


def _path(row: Audited) -> Mapping[str, str]:
    return (row.detail or {}).get("path") or {}
