"""`JournalRole` in memory; and `AnalyticsRole`, with the journal but no results: the pipeline needs PostgreSQL."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice

from tarry.core.analytics.no_pipeline import NoPipeline
from tarry.core.analytics.port import AnalyticsPage, AnalyticsQuery
from tarry.core.errors import InvalidInput
from tarry.core.journal.events import Event, EventKind
from tarry.core.journal.positions import EventPage, GapReason, Position
from tarry.core.journal.snapshots import SnapshotBound
from tarry.storage.memory.state import MemoryRole, locked


class MemoryJournal(MemoryRole):
    @locked
    def timeline(self, queue: str, key: str, *, limit: int = 1000, before: int | None = None) -> list[Event]:
        state = self._state.queue(queue)
        events = [
            event
            for event, of in self._state.events
            if of is state and event.key == key and (before is None or event.id < before)
        ]
        last = events[max(len(events) - max(limit, 0), 0) :]
        # Events before a renaming are returned under the current name of the queue.
        return [event if event.queue == state.name else replace(event, queue=state.name) for event in last]

    @locked
    def tail(self, after: str | None, *, until: str | None = None, limit: int = 1_000, most: int = 20_000) -> EventPage:
        """Nothing commits late in memory, so a position is an event id, in the form of the snapshot that sees it."""
        state = self._state
        current = self._position(state.last_event)
        if after is None:
            return EventPage(position=current)
        start, end = self._id(after), state.last_event if until is None else self._id(until)
        if start is None or end is None or max(start, end) > state.last_event:
            return EventPage(position=current, gap=GapReason.UNKNOWN)
        skipped = start - (state.last_event - len(state.events))
        if skipped < 0:
            return EventPage(position=current, gap=GapReason.PRUNED)
        if end - start > most:
            return EventPage(position=current, gap=GapReason.TOO_FAR)
        page = islice(state.events, skipped, skipped + min(max(1, limit), max(0, end - start)))
        events = tuple((self._position(event.id), replace(event, payload=None)) for event, _ in page)
        reached = events[-1][1].id if events else start
        return EventPage(events=events, position=self._position(reached), complete=reached >= end)

    def _position(self, id: int) -> str:
        return str(Position(self._state.journal, SnapshotBound(f"{id + 1}:{id + 1}:")))

    def _id(self, text: str) -> int | None:
        position = Position.parse(text)
        if position is None or position.journal != self._state.journal or position.edge.mark is not None:
            return None
        first, end, running = position.edge.snapshot.split(":")
        return int(end) - 1 if first == end and not running else None


class MemoryAnalytics(MemoryRole, NoPipeline):
    @locked
    def events(
        self, query: AnalyticsQuery, *, kinds: Iterable[EventKind] | None = None, consumer: str | None = None
    ) -> AnalyticsPage[Event]:
        chosen, after = frozenset(kinds or EventKind), query.after
        if after is not None and not (after.isascii() and after.isdigit() and len(after) < 20):
            raise InvalidInput("after: this is not the `next` of a page")
        before = None if after is None else int(after)
        if query.queue is not None:
            self._state.queue(query.queue)  # raises if there is none
        events = [
            replace(event, payload=None)
            for event, _ in reversed(self._state.events)
            if event.kind in chosen
            and (before is None or event.id < before)
            and query.covers(event.queue, event.at)
            and consumer in (None, event.consumer)
        ]
        rows = events[: query.limit]
        return AnalyticsPage(rows=rows, next=str(rows[-1].id) if rows and len(events) > len(rows) else None)
