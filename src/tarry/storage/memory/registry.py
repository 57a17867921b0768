"""The queues of an in-memory store by name."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count

from tarry.core import limits
from tarry.core.errors import Refused, UnknownQueue
from tarry.core.events import EventKind
from tarry.core.messages import Hold
from tarry.core.scheduling import DueCount
from tarry.core.settings import QueueInfo, QueueSettings
from tarry.storage.memory.journal import Journal
from tarry.storage.memory.queues import MemoryQueue


class Registry:
    """Not thread-safe: the store's lock is held around every call."""

    def __init__(self, journal: Journal, *, create_on_use: bool) -> None:
        self._journal = journal
        self._create_on_use = create_on_use
        # One counter for all queues: a version identifies one state of one message across queues.
        self._versions = count(1)
        self._queues: dict[str, MemoryQueue] = {}

    def known(self, name: str) -> MemoryQueue:
        """For all verbs that never create a queue."""
        queue = self._queues.get(name)
        if queue is None:
            raise UnknownQueue(name)
        return queue

    def found(self, name: str) -> MemoryQueue | None:
        return self._queues.get(name)

    def holding(self, name: str, hold: Hold) -> MemoryQueue | None:
        """The queue of this name, or the one that had it before and whose message this lease holds."""
        named = self._queues.get(name)
        if named is not None and _holds(named, hold):
            return named  # without a look at the other queues, of which there may be many
        renamed = (queue for queue in self._queues.values() if name in queue.former_names and _holds(queue, hold))
        return next(renamed, named)

    def queues(self) -> list[MemoryQueue]:
        return list(self._queues.values())

    def used(self, name: str, now: datetime) -> MemoryQueue:
        """For offers and polls, which create their queue if it is missing."""
        queue = self._queues.get(name)
        if queue is None:
            if not self._create_on_use:
                raise UnknownQueue(name)
            queue = self._make(name, QueueSettings(), now)
        return queue

    def create(self, name: str, settings: QueueSettings, now: datetime, *, exist_ok: bool) -> QueueInfo:
        queue = self._queues.get(name)
        if queue is None:
            queue = self._make(name, settings, now)
        elif not exist_ok:
            raise _taken(name)
        return queue.info

    def edit(self, name: str, settings: QueueSettings, only: frozenset[str], now: datetime) -> QueueInfo:
        queue = self.known(name)
        queue.settings = replace(queue.settings, **{setting: getattr(settings, setting) for setting in only})
        queue.note_queue(EventKind.QUEUE_EDITED, now)
        return queue.info

    def rename(self, name: str, new_name: str, now: datetime) -> QueueInfo:
        limits.check_queue_name(new_name)
        queue = self.known(name)
        if new_name in self._queues:
            raise _taken(new_name)
        queue.former_names.add(name)
        del self._queues[name]
        queue.name = new_name
        self._queues[new_name] = queue
        queue.note_queue(EventKind.QUEUE_RENAMED, now, {"from": name, "to": new_name})
        return queue.info

    def delete(self, name: str, now: datetime, *, force: bool) -> None:
        queue = self.known(name)
        live, dead = len(queue.rows), len(queue.dead)
        if (live or dead) and not force:
            raise Refused(
                f"queue {name!r} is not empty: {live:,} live and {dead:,} dead messages",
                hint="drop and purge them first, or force the deletion",
            )
        if live or dead:
            # Message by message: the journal must record each, and a poll that is decoding must find its rows gone.
            queue.drop_all(now)
            queue.purge_dead(now)
        queue.note_queue(EventKind.QUEUE_DELETED, now)
        del self._queues[name]

    def pause(self, name: str, reason: str | None, now: datetime) -> QueueInfo:
        queue = self.known(name)
        if queue.paused_at is None:
            queue.paused_at, queue.paused_reason = now, reason
            queue.note_queue(EventKind.QUEUE_PAUSED, now, {"reason": reason})
        return queue.info

    def resume(self, name: str, now: datetime) -> QueueInfo:
        queue = self.known(name)
        if queue.paused_at is not None:
            queue.paused_at = queue.paused_reason = None
            queue.note_queue(EventKind.QUEUE_RESUMED, now)
        return queue.info

    def infos(self) -> list[QueueInfo]:
        return [self._queues[name].info for name in sorted(self._queues)]

    def due_counts(self, since: datetime, until: datetime, every: timedelta) -> list[DueCount]:
        found: Counter[tuple[datetime, str, bool]] = Counter()
        for queue in self._queues.values():
            for row in queue.rows.values():
                if since <= row.due_at < until:
                    found[since + (row.due_at - since) // every * every, queue.name, row.attempt > 0] += 1
        slices = sorted({(start_at, name) for start_at, name, _ in found})
        return [
            DueCount(name, start, found[start, name, False] + found[start, name, True], found[start, name, True])
            for start, name in slices
        ]

    def _make(self, name: str, settings: QueueSettings, now: datetime) -> MemoryQueue:
        queue = MemoryQueue(
            limits.check_queue_name(name),
            settings,
            created_at=now,
            journal=self._journal,
            next_version=lambda: next(self._versions),
        )
        self._queues[name] = queue
        queue.note_queue(EventKind.QUEUE_CREATED, now)
        return queue


def _holds(queue: MemoryQueue, hold: Hold) -> bool:
    row = queue.rows.get(hold.key)
    return row is not None and row.token == hold.token


def _taken(name: str) -> Refused:
    return Refused(f"there is a queue named {name!r} already", hint="choose another name")
