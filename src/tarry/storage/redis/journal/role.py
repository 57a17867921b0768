"""`JournalRole` on Redis: a bounded stream per queue, merged where a reader follows all of them.

An event's id is the server's time in microseconds, or the next number if the queue had that one already; it only grows
within a queue. A position is an event id and a queue number: all events up to it, in that order, were read. A page ends
before the time at which its reading began, so no later event has an id inside the page, unless the server's clock is set
back."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from tarry.core.journal.events import Event
from tarry.core.journal.positions import EventPage, GapReason, Position
from tarry.core.journal.snapshots import Mark, SnapshotBound
from tarry.storage.redis.operation import Op, RedisRole, operation
from tarry.storage.redis.rows import events_of, first_id

_EVERY_QUEUE = 2**62
_FUTURE = 3_600_000_000
"""A position that is more than an hour ahead of the server was not issued by it."""


class Bound(NamedTuple):
    id: int
    queue: int

    def last_of(self, queue: int) -> int:
        """The last id of a queue that is not after this bound."""
        return self.id if queue <= self.queue else self.id - 1


class RedisJournal(RedisRole):
    @operation
    def timeline(self, queue: str, key: str, *, limit: int = 1000, before: int | None = None) -> Op[list[Event]]:
        events: list[Event] = []
        while True:
            missing = max(min(limit - len(events), 2_000), 0)
            position, entries, name = yield from self._in_queue(
                queue, "journal/timeline", key=key, limit=missing, before=before
            )
            events += [event for id, fields in entries for event in events_of(id, fields, name.decode())]
            if not position or len(events) >= limit:
                return events[::-1]
            before = int(position)

    @operation
    def tail(
        self, after: str | None, *, until: str | None = None, limit: int = 1_000, most: int = 20_000
    ) -> Op[EventPage]:
        journal, now, ids = yield from self.journals()
        current = _text(journal, Bound(now - 1, _EVERY_QUEUE))
        if after is None:
            return EventPage(position=current)
        start, end = _bound(journal, after), Bound(now - 1, _EVERY_QUEUE) if until is None else _bound(journal, until)
        if start is None or end is None or max(start, end).id > now + _FUTURE:
            return EventPage(position=current, gap=GapReason.UNKNOWN)
        events: list[tuple[Bound, Event]] = []
        count, horizon = 0, now
        for id in ids:
            first, last = start.last_of(int(id, 16)) + 1, min(end.last_of(int(id, 16)), now - 1)
            if first > last:
                continue
            node_now, n, pruned, entries, exists = yield from self._by_id(
                id, "journal/since", first=str(first), last=str(last), limit=max(1, limit), most=most
            )
            if pruned:
                return EventPage(position=current, gap=GapReason.PRUNED)
            if not exists and (yield from self._by_id(id, "queues/name")) == b"":
                yield from self._registry("journal/forget", id=id)
            count, horizon = count + n, min(horizon, int(node_now))
            events += [
                (Bound(event.id, int(id, 16)), replace(event, payload=None))
                for entry in entries
                for event in events_of(*entry)
                if first <= event.id <= last
            ]
        if count > most:
            return EventPage(position=current, gap=GapReason.TOO_FAR)
        page = sorted((item for item in events if item[0].id < horizon), key=lambda item: item[0])[: max(1, limit)]
        complete = len(page) == count
        reached = max(start, min(end, Bound(horizon - 1, _EVERY_QUEUE))) if complete else page[-1][0] if page else start
        return EventPage(
            events=tuple((_text(journal, bound), event) for bound, event in page),
            position=_text(journal, reached),
            complete=complete,
        )

    def journals(self) -> Op[tuple[str, int, Sequence[str]]]:
        """The name of the journal, the server's time, and the ids of all queues with events."""
        reply: Any = yield from self._registry("journal/journals", name=secrets.token_hex(8))
        return reply[0].decode(), int(reply[1]), [id.decode() for id in reply[2][::2]]

    def before(self, id: str, before: int | None, limit: int) -> Op[tuple[list[Event], int | None]]:
        """Events of one queue before an id, newest first, and the id before which the next ones are; None: there are none."""
        entries, is_end = yield from self._by_id(id, "journal/before", before=before, limit=limit)
        events = [event for entry in entries for event in reversed(events_of(*entry))]
        last = None if is_end or not entries else first_id(entries[-1][0])
        return [event for event in events if before is None or event.id < before], last

    def id_of(self, queue: str) -> Op[str | None]:
        return (yield from self._ids(queue)).id


def _text(journal: str, bound: Bound) -> str:
    """As PostgreSQL's: a snapshot, here an odd number, and a mark inside of it."""
    snapshot = f"{2 * bound.id + 1}:{2 * bound.id + 1}:"
    if bound.queue == _EVERY_QUEUE:
        return str(Position(journal, SnapshotBound(snapshot)))
    return str(Position(journal, SnapshotBound(snapshot, snapshot, Mark(bound.id, bound.queue))))


def _bound(journal: str, text: str) -> Bound | None:
    position = Position.parse(text)
    if position is None or position.journal != journal:
        return None
    mark = position.edge.mark
    return Bound(int(position.edge.snapshot.split(":")[1]) // 2, _EVERY_QUEUE if mark is None else mark.id)
