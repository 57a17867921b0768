"""`AnalyticsRole` on Redis, which has the journal but no results, because the pipeline needs PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from tarry.core.analytics.no_pipeline import NoPipeline
from tarry.core.analytics.port import AnalyticsPage, AnalyticsQuery
from tarry.core.errors import InvalidInput, UnknownQueue
from tarry.core.journal.events import Event, EventKind
from tarry.storage.redis.journal.role import RedisJournal
from tarry.storage.redis.operation import Op, RedisRole, RoleContext, operation

_SCANNED = 1_000
"""Events of each queue that one page scans."""


class RedisAnalytics(RedisRole, NoPipeline):
    def __init__(self, context: RoleContext, journal: RedisJournal) -> None:
        super().__init__(context)
        self._journal = journal

    @operation
    def events(
        self, query: AnalyticsQuery, *, kinds: Iterable[EventKind] | None = None, consumer: str | None = None
    ) -> Op[AnalyticsPage[Event]]:
        after = query.after
        if after is not None and not (after.isascii() and after.isdigit() and len(after) < 20):
            raise InvalidInput("after: this is not the `next` of a page")
        chosen = frozenset(kinds or EventKind)

        def fits(event: Event) -> bool:
            return event.kind in chosen and query.covers(event.queue, event.at) and consumer in (None, event.consumer)

        return (yield from self._look_back(query, None if after is None else int(after), fits))

    def _look_back(
        self, query: AnalyticsQuery, before: int | None, fits: Callable[[Event], bool]
    ) -> Op[AnalyticsPage[Event]]:
        """Newest first. The page ends where the first incomplete scan of a queue stopped; the next page begins there."""
        _, _, ids = yield from self._journal.journals()
        if query.queue is not None:
            known = yield from self._journal.id_of(query.queue)
            if known is None:
                raise UnknownQueue(query.queue)
            ids = [known]
        events: list[Event] = []
        horizon = 0
        for id in ids:
            read, last = yield from self._journal.before(id, before, _SCANNED)
            events += read
            horizon = max(horizon, last or 0)
        events.sort(key=lambda event: event.id, reverse=True)
        fitting = [replace(event, payload=None) for event in events if event.id >= horizon and fits(event)]
        rows = fitting[: query.limit]
        if query.limit is not None and len(fitting) > len(rows):
            return AnalyticsPage(rows=rows, next=str(rows[-1].id))
        return AnalyticsPage(rows=rows, next=str(horizon) if horizon else None)
