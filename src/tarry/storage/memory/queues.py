"""`QueuesRole` in memory."""

from dataclasses import replace
from datetime import datetime

from tarry.core import limits
from tarry.core.errors import InvalidState
from tarry.core.journal.events import EventKind
from tarry.core.messages.model import Counts
from tarry.core.settings import QueueInfo, QueueSettings
from tarry.storage.memory.cron import MemoryCron
from tarry.storage.memory.state import MemoryOperation, MemoryRole, MemoryState, locked


class MemoryQueues(MemoryRole):
    def __init__(self, state: MemoryState, cron: MemoryCron) -> None:
        super().__init__(state)
        self._cron = cron

    @locked
    def create(self, name: str, settings: QueueSettings, *, exist_ok: bool) -> QueueInfo:
        queue = self._state.queues.get(name)
        if queue is None:
            queue = self._state.create_queue(name, settings)
        elif not exist_ok:
            raise InvalidState.queue_exists(name)
        return queue.info

    @locked
    def edit(self, name: str, settings: QueueSettings, *, only: frozenset[str]) -> QueueInfo:
        queue = self._state.queue(name)
        queue.settings = replace(queue.settings, **{setting: getattr(settings, setting) for setting in only})
        queue.note_queue(EventKind.QUEUE_EDITED)
        return queue.info

    @locked
    def rename(self, name: str, new_name: str) -> QueueInfo:
        limits.check_queue_name(new_name)
        queue, queues = self._state.queue(name), self._state.queues
        if new_name in queues:
            raise InvalidState.queue_exists(new_name)
        queue.former_names.add(name)
        queue.name = new_name
        queues[new_name] = queues.pop(name)
        queue.note_queue(EventKind.QUEUE_RENAMED, {"from": name, "to": new_name})
        self._cron.rename_queue(name, new_name)
        return queue.info

    @locked
    def delete(self, name: str, *, force: bool) -> None:
        queue = self._state.queue(name)
        live, dead = len(queue.rows), len(queue.dead)
        if (live or dead) and not force:
            raise InvalidState.queue_not_empty(name, live, dead)
        if live or dead:
            # Message by message: the journal must record each, and a poll that is decoding must find its rows gone.
            queue.purge()
            queue.discard()
        queue.note_queue(EventKind.QUEUE_DELETED)
        del self._state.queues[name]

    @locked
    def info(self, name: str) -> QueueInfo:
        return self._state.queue(name).info

    @locked
    def infos(self) -> list[QueueInfo]:
        return [queue.info for _, queue in sorted(self._state.queues.items())]

    @locked
    def counts(self, name: str, *, limit: int = 10_000) -> Counts:
        return self._state.queue(name).counts(limit, self._now)

    @locked
    def pause(self, name: str, *, reason: str | None = None) -> QueueInfo:
        queue = self._state.queue(name)
        if queue.paused_at is None:
            queue.paused_at, queue.paused_reason = self._now, reason
            queue.note_queue(EventKind.QUEUE_PAUSED, {"reason": reason})
        return queue.info

    @locked
    def resume(self, name: str) -> QueueInfo:
        queue = self._state.queue(name)
        if queue.paused_at is not None:
            queue.paused_at = queue.paused_reason = None
            self._state.changed.add(queue)
            queue.note_queue(EventKind.QUEUE_RESUMED)
        return queue.info

    def now(self) -> MemoryOperation[datetime]:
        return MemoryOperation(self._state.now)
