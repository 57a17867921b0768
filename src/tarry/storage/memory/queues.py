"""The state of one queue: live messages, dead letters and delivery order."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from tarry.core.events import Event, EventKind, JournalLevel
from tarry.core.messages import (
    Counted,
    Counts,
    DeadLetter,
    Filter,
    StoredMessage,
)
from tarry.core.redriving import EVERY_LETTER, DeadFilter, DeadPlace
from tarry.core.settings import QueueInfo, QueueSettings
from tarry.core.states import State
from tarry.storage.memory.journal import Journal, Timelines, last
from tarry.storage.memory.lanes import Lines
from tarry.storage.memory.rows import DeadRow, Row


class MemoryQueue:
    """Not thread-safe: the store's lock is held around every call."""

    def __init__(
        self,
        name: str,
        settings: QueueSettings,
        *,
        created_at: datetime,
        journal: Journal,
        next_version: Callable[[], int],
    ) -> None:
        self.name = name
        self.former_names: set[str] = set()
        self.settings = settings
        self.created_at = created_at
        self.paused_at: datetime | None = None
        self.paused_reason: str | None = None
        self.next_version = next_version
        self.rows: dict[str, Row] = {}
        self.dead: dict[int, DeadRow] = {}
        self.lines = Lines()
        self._journal = journal
        self._timelines: Timelines = {}

    @property
    def info(self) -> QueueInfo:
        return QueueInfo(
            name=self.name,
            settings=self.settings,
            created_at=self.created_at,
            paused_at=self.paused_at,
            paused_reason=self.paused_reason,
        )

    def add(self, row: Row) -> None:
        """Add a row. It replaces a row with the same key, which is then no longer live."""
        old = self.rows.get(row.key)
        if old is not None:
            self.lines.remove(old)
        self.rows[row.key] = row
        self.lines.wait(row)

    def remove(self, row: Row) -> None:
        del self.rows[row.key]
        self.lines.remove(row)

    def bury(self, row: Row, reason: str, error: str | None, now: datetime) -> None:
        self.note(EventKind.BURIED, row, now, leased=True, error=error, detail={"reason": reason})
        self.remove(row)
        last_words = error if error is not None else row.last_error
        self.dead[row.version] = DeadRow(row, died_at=now, reason=reason, error=last_words, consumer=row.consumer)
        row.let_go()

    def drop_all(self, now: datetime) -> int:
        rows = list(self.rows.values())
        for row in rows:
            self.note(EventKind.DROPPED, row, now)
        self.rows.clear()
        self.lines = Lines()
        self.note_queue(EventKind.QUEUE_PURGED, now, {"count": len(rows)})
        return len(rows)

    def purge_dead(self, now: datetime, where: DeadFilter = EVERY_LETTER) -> int:
        purged = sorted((d for d in self.dead.values() if d.fits(where)), key=lambda dead: dead.age_order)
        for dead in purged:
            self.note(EventKind.PURGED, dead.row, now)
            del self.dead[dead.row.version]
        return len(purged)

    def note(
        self,
        kind: EventKind,
        row: Row,
        at: datetime,
        *,
        leased: bool = False,
        error: str | None = None,
        detail: Mapping[str, Any] | None = None,
    ) -> None:
        level = self.settings.journal
        if level is not JournalLevel.OFF:
            self._journal.write(
                self.name,
                self._timelines,
                kind,
                row,
                at,
                leased=leased,
                keeps_payload=level is JournalLevel.PAYLOADS,
                error=error,
                detail=detail,
            )

    def note_queue(self, kind: EventKind, at: datetime, detail: Mapping[str, Any] | None = None) -> None:
        self._journal.write_queue(self.name, kind, at, detail)

    def timeline(self, key: str, limit: int, before: int | None) -> list[Event]:
        events = self._timelines.get(key, deque())
        events = last(events if before is None else [event for event in events if event.id < before], limit)
        # Events before a renaming are returned under the current name of the queue.
        return [event if event.queue == self.name else replace(event, queue=self.name) for event in events]

    def messages(self, state: State | None, limit: int, filter: Filter, now: datetime) -> list[StoredMessage[bytes]]:
        rows = (row for row in self.rows.values() if (state is None or row.state(now) is state) and row.is_in(filter))
        found = heapq.nsmallest(max(limit, 0), rows, key=lambda row: (row.due_at, row.version))
        return [row.stored(self.name, self.settings, now) for row in found]

    def dead_letters(self, where: DeadFilter, limit: int, before: DeadPlace | None) -> list[DeadLetter[bytes]]:
        found = (
            dead for dead in self.dead.values() if dead.fits(where) and (before is None or dead.age_order < before)
        )
        newest = heapq.nlargest(max(limit, 0), found, key=lambda dead: dead.age_order)
        return [dead.letter(self.name) for dead in newest]

    def counts(self, limit: int, now: datetime) -> Counts:
        states = Counter(row.state(now) for row in self.rows.values())

        def counted(n: int) -> Counted:
            return Counted(min(n, limit), capped=n > limit)

        ready = (row.due_at for row in self.rows.values() if row.state(now) is State.READY)
        return Counts(
            delayed=counted(states[State.DELAYED]),
            ready=counted(states[State.READY]),
            leased=counted(states[State.LEASED]),
            dead=counted(len(self.dead)),
            lag_for=now - min(ready, default=now),
        )
