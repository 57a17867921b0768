"""The journal of the in-memory store: the events of all queues in order, and of each message."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from hashlib import sha256
from itertools import count, islice
from typing import Any

from tarry.core.events import Event, EventKind
from tarry.core.following import EventPage, Gap, Position
from tarry.core.windows import Edge
from tarry.storage.memory.rows import Row

Timelines = dict[str, deque[Event]]
"""The events of one queue's messages by key. They belong to the queue, and so survive its renaming."""

_WITH_CONTENT = (EventKind.OFFERED, EventKind.UPDATED, EventKind.EDITED)
_HASH_BYTES = 8


class Journal:
    """Keeps the last `kept` events (None: all). Bounded, because no archive takes them over."""

    def __init__(self, *, kept: int | None) -> None:
        self._kept = kept
        self._name = secrets.token_hex(8)
        self._ids = count(1)
        self._last = 0
        self._events: deque[tuple[Event, Timelines | None]] = deque()

    def events(self) -> list[Event]:
        return [event for event, _ in self._events]

    def follow(self, after: str | None, until: str | None, limit: int, most: int) -> EventPage:
        """Nothing commits late here, so every position is the id of an event, written as the snapshot that sees it."""
        if after is None:
            return EventPage(position=self._position(self._last))
        start, end = self._id(after), self._last if until is None else self._id(until)
        if start is None or end is None or max(start, end) > self._last:
            return EventPage(position=self._position(self._last), gap=Gap.UNKNOWN)
        if start < self._last - len(self._events):
            return EventPage(position=self._position(self._last), gap=Gap.PRUNED)
        if end - start > most:
            return EventPage(position=self._position(self._last), gap=Gap.TOO_FAR)
        skipped = start - (self._last - len(self._events))
        there = islice(self._events, skipped, skipped + min(max(1, limit), max(0, end - start)))
        events = tuple((self._position(event.id), replace(event, payload=None)) for event, _ in there)
        reached = events[-1][1].id if events else start
        return EventPage(events=events, position=self._position(reached), complete=reached >= end)

    def _position(self, id: int) -> str:
        return str(Position(self._name, Edge(f"{id + 1}:{id + 1}:")))

    def _id(self, text: str) -> int | None:
        found = Position.parse(text)
        if found is None or found.journal != self._name or found.edge.mark is not None:
            return None
        first, end, running = found.edge.snapshot.split(":")
        return int(end) - 1 if first == end and not running else None

    def write_queue(self, queue: str, kind: EventKind, at: datetime, detail: Mapping[str, Any] | None = None) -> None:
        self._append(Event(id=next(self._ids), kind=kind, at=at, queue=queue, detail=detail), None)

    def write(
        self,
        queue: str,
        timelines: Timelines,
        kind: EventKind,
        row: Row,
        at: datetime,
        *,
        leased: bool = False,
        keeps_payload: bool = False,
        error: str | None = None,
        detail: Mapping[str, Any] | None = None,
    ) -> None:
        """Append the current state of the row; `leased` adds the lease times, so call it before clearing the lease."""
        has_content = kind in _WITH_CONTENT
        event = Event(
            id=next(self._ids),
            kind=kind,
            at=at,
            queue=queue,
            key=row.key,
            version=row.version,
            attempt=row.attempt,
            priority=row.priority,
            due_at=row.due_at,
            leased_at=row.leased_at if leased else None,
            lease_until=row.lease_until if leased else None,
            consumer=row.consumer,
            size=len(row.payload) if has_content or kind is EventKind.REDRIVEN else None,
            payload_hash=sha256(row.payload).digest()[:_HASH_BYTES] if has_content else None,
            payload=row.payload if has_content and keeps_payload else None,
            error=error,
            detail={**(detail or {}), **_told(row)} or None if has_content and keeps_payload else detail,
        )
        timelines.setdefault(row.key, deque()).append(event)
        self._append(event, timelines)

    def _append(self, event: Event, timelines: Timelines | None) -> None:
        self._events.append((event, timelines))
        self._last = event.id
        if self._kept is not None and len(self._events) > self._kept:
            self._forget(*self._events.popleft())

    def _forget(self, event: Event, timelines: Timelines | None) -> None:
        if timelines is None or event.key is None:
            return
        # The oldest event overall is also the oldest of its key.
        timeline = timelines[event.key]
        timeline.popleft()
        if not timeline:
            del timelines[event.key]


def last(timeline: Sequence[Event], limit: int) -> list[Event]:
    """The last `limit` events, oldest first."""
    return list(islice(timeline, max(len(timeline) - max(limit, 0), 0), None))


def _told(row: Row) -> dict[str, Any]:
    """The fields needed to decode and route a payload."""
    said = {"type": row.type, "content_type": row.content_type, "headers": row.headers}
    return {name: value for name, value in said.items() if value is not None}
