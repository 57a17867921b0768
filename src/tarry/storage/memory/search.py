"""`SearchRole` in memory: everything is scanned."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from tarry.core.messages.model import Counted, MessagePosition, StoredMessage
from tarry.core.search.port import SearchPage
from tarry.core.search.query import Search
from tarry.storage.memory.state import MemoryRole, locked


class MemorySearch(MemoryRole):
    @locked
    def messages(
        self,
        search: Search,
        queues: Sequence[str],
        *,
        limit: int = 50,
        after: MessagePosition | None = None,
        payloads: bool = False,
    ) -> SearchPage:
        scanned = self._live(queues)
        matching = [
            message
            for message in scanned
            if search.state in (None, message.state)
            and (after is None or (message.due_at, message.version) > after)
            and search.admits(
                key=message.key,
                type=message.type,
                consumer=message.consumer,
                error=message.last_error,
                attempt=message.attempt,
                priority=message.priority,
                due_at=message.due_at,
                created_at=message.created_at,
            )
        ]
        page = sorted(matching, key=lambda message: (message.due_at, message.version))[: max(limit, 0)]
        return SearchPage(
            messages=page if payloads else [replace(message, payload=b"") for message in page],
            matching=Counted(len(matching)),
            scanned=len(scanned),
        )

    @locked
    def journal_since(self) -> datetime | None:
        events = self._state.log.events
        return events[0][0].at if events else None

    def _live(self, queues: Sequence[str]) -> builtins.list[StoredMessage[bytes]]:
        states = [self._state.queues[name] for name in queues if name in self._state.queues]
        return [row.stored(queue.name, queue.settings, self._now) for queue in states for row in queue.rows.values()]
