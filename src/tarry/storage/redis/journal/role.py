"""`JournalRole` on Redis: a bounded stream per queue."""

from __future__ import annotations

from tarry.core.journal.events import Event
from tarry.storage.redis.operation import Op, RedisRole, operation
from tarry.storage.redis.rows import event_of


class RedisJournal(RedisRole):
    @operation
    def timeline(self, queue: str, key: str, *, limit: int = 1000, before: int | None = None) -> Op[list[Event]]:
        events: list[Event] = []
        position = None if before is None else f"{before}-0"
        while True:
            missing = max(min(limit - len(events), 2_000), 0)
            position, entries, name = yield from self._in_queue(
                queue, "journal/timeline", key=key, limit=missing, before=position
            )
            found = (event_of(id, fields, name.decode()) for id, fields in entries)
            events += [event for event in found if event is not None]
            if not position or len(events) >= limit:
                return events[::-1]
            position = position.decode()
