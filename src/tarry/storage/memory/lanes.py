"""Delivery order: the next message without scanning all of them.

Waiting messages are ordered by due time and leased ones by the end of their lease, both independent of the current
time. A clock that is set back therefore needs no repair: a message moved too early is moved back when it reaches the
head.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from datetime import datetime

from tarry.storage.memory.rows import Row

_Entry = tuple[datetime, int, Row]
_TOLERATED = 64
"""Removed entries that a lane may keep: removing them from a short lane every time would cost more than they do."""


class Lane:
    """Rows by an instant, then version. A removed row stays in the heap until it surfaces or such rows outnumber the
    rest.
    """

    __slots__ = ("_entries", "_heap")

    def __init__(self) -> None:
        self._heap: list[_Entry] = []
        self._entries: dict[int, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, at: datetime, row: Row) -> None:
        entry = (at, row.version, row)
        self._entries[row.version] = entry
        heapq.heappush(self._heap, entry)
        self._sweep()

    def remove(self, row: Row) -> None:
        if self._entries.pop(row.version, None) is not None:
            self._sweep()

    def head(self) -> tuple[datetime, Row] | None:
        while self._heap:
            entry = self._heap[0]
            if self._entries.get(entry[1]) is entry:
                return entry[0], entry[2]
            heapq.heappop(self._heap)
        return None

    def _sweep(self) -> None:
        # Without this a key that is updated forever, or a type that is never polled, would fill the memory.
        if len(self._heap) > 2 * len(self._entries) + _TOLERATED:
            self._heap = list(self._entries.values())
            heapq.heapify(self._heap)


class Line:
    """One view of a queue's rows: all of them, or those of one type."""

    __slots__ = ("leased", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[int, Lane] = {}
        self.leased = Lane()

    def __len__(self) -> int:
        return len(self.leased) + sum(len(lane) for lane in self.waiting.values())

    def lane(self, priority: int) -> Lane:
        found = self.waiting.get(priority)
        if found is None:
            found = self.waiting[priority] = Lane()
        return found

    def by_priority(self, *, lowest_first: bool = False) -> Iterator[Lane]:
        for priority in sorted(self.waiting, reverse=not lowest_first):
            yield self.waiting[priority]


class Lines:
    """All rows of one queue in delivery order, also per type."""

    def __init__(self) -> None:
        self._all = Line()
        self._by_type: dict[str, Line] = {}

    def wait(self, row: Row) -> None:
        """Make a row deliverable from its due time on."""
        for line in self._lines_of(row):
            line.leased.remove(row)
            line.lane(row.priority).put(row.due_at, row)

    def hold(self, row: Row) -> None:
        """Make a row undeliverable until its lease ends."""
        assert row.lease_until is not None  # noqa: S101 - for the type checker: only a leased row is held
        for line in self._lines_of(row):
            line.lane(row.priority).remove(row)
            # The lease ends before the due time only if the clock was set back between poll and touch.
            line.leased.put(max(row.lease_until, row.due_at), row)

    def remove(self, row: Row) -> None:
        for line in self._lines_of(row):
            line.lane(row.priority).remove(row)
            line.leased.remove(row)
        if row.type is not None and not self._by_type[row.type]:
            # There may be as many types as messages: an empty line must not outlive its last message.
            del self._by_type[row.type]

    def take(self, n: int, now: datetime, type: str | None, *, lowest_first: bool = False) -> list[Row]:
        """Remove and return the first `n` deliverable rows. The caller must put each of them back or settle it."""
        line = self._line(type)
        taken: list[Row] = []
        if line is None:
            return taken
        self._return_expired(line, now)
        for lane in line.by_priority(lowest_first=lowest_first):
            while len(taken) < n and (head := self._free_head(lane, now)) is not None and head.due_at <= now:
                self.remove(head)
                taken.append(head)
        return taken

    def next_at(self, now: datetime, type: str | None) -> datetime | None:
        """When a row may become deliverable; an instant that is not after `now` means at once."""
        line = self._line(type)
        if line is None:
            return None
        self._return_expired(line, now)
        heads = (self._free_head(lane, now) for lane in line.by_priority())
        instants = [head.due_at for head in heads if head is not None]
        if (leased := line.leased.head()) is not None:
            instants.append(leased[0])
        return min(instants, default=None)

    def _free_head(self, lane: Lane, now: datetime) -> Row | None:
        while (head := lane.head()) is not None:
            row = head[1]
            if row.is_free(now):
                return row
            self.hold(row)  # Its lease had ended, and the clock was set back since.
        return None

    def _return_expired(self, line: Line, now: datetime) -> None:
        while (head := line.leased.head()) is not None and head[0] <= now:
            self.wait(head[1])

    def _line(self, type: str | None) -> Line | None:
        return self._all if type is None else self._by_type.get(type)

    def _lines_of(self, row: Row) -> tuple[Line, ...]:
        if row.type is None:
            return (self._all,)
        typed = self._by_type.get(row.type)
        if typed is None:
            typed = self._by_type[row.type] = Line()
        return self._all, typed
