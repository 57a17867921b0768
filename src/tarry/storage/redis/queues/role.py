"""`QueuesRole` on Redis. The registry has the names; the queue's record, in another cluster slot, has everything else.

Steps in both are ordered so that the record is right whenever a process ends between two of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from tarry.core.errors import InvalidState, UnknownQueue
from tarry.core.limits import check_queue_name
from tarry.core.messages.model import Counted, Counts
from tarry.core.settings import QueueInfo, QueueSettings
from tarry.storage.redis.operation import LOOKUPS, Op, RedisRole, in_change, instant, operation, since, stored
from tarry.storage.redis.rows import info_of


class RedisQueues(RedisRole):
    @operation
    def create(self, name: str, settings: QueueSettings, *, exist_ok: bool) -> Op[QueueInfo]:
        if (yield from self._ids(name)).id is None:
            _, record, is_new = yield from self._create(name, settings)
            if is_new:
                return info_of(record)
        try:
            existing = info_of((yield from self._in_queue(name, "queues/info")))
        except UnknownQueue:  # the name was left by an interrupted deletion, and is free now
            return info_of((yield from self._create(name, settings))[1])
        if not exist_ok:
            raise InvalidState.queue_exists(name)
        return existing

    @operation
    def edit(self, name: str, settings: QueueSettings, *, only: frozenset[str]) -> Op[QueueInfo]:
        return info_of((yield from self._in_queue(name, "queues/edit", settings=stored(settings), only=sorted(only))))

    @operation
    def rename(self, name: str, new_name: str) -> Op[QueueInfo]:
        """Reserve the name, change the record, then the registry."""
        check_queue_name(new_name)
        for _ in range(LOOKUPS):
            yield from self._in_queue(name, "queues/info")
            id = (yield from self._ids(name)).id
            if id is None:
                raise UnknownQueue(name)
            number = yield from self._registry("queues/reserve", name=new_name, id=id)
            if not number:
                raise InvalidState.queue_exists(new_name)
            params = {"queue": name, "new_name": new_name, "reservation": number}
            record = yield from self._by_id(id, "queues/rename", **params)
            self._forget(name, new_name)
            if record is not None:
                yield from self._registry("queues/unregister", name=name, id=id, new_name=new_name)
                return info_of(record)
        raise in_change(name)

    @operation
    def delete(self, name: str, *, force: bool) -> Op[None]:
        live, dead = yield from self._in_queue(name, "queues/delete", force=force)
        if (live or dead) and not force:
            raise InvalidState.queue_not_empty(name, live, dead)
        id = (yield from self._ids(name)).id
        if id is not None:
            yield from self._registry("queues/unregister", name=name, id=id, deleting=True)
            self._forget(name)
            yield from self._remove_deleted(id)

    @operation
    def info(self, name: str) -> Op[QueueInfo]:
        return info_of((yield from self._in_queue(name, "queues/info")))

    @operation
    def infos(self) -> Op[list[QueueInfo]]:
        infos: list[QueueInfo] = []
        for name in sorted((yield from self._names())):
            try:
                infos.append(info_of((yield from self._in_queue(name, "queues/info"))))
            except UnknownQueue:  # deleted since the names were read
                continue
        return infos

    def _names(self) -> Op[list[str]]:
        names: Sequence[bytes] = yield from self._registry("queues/names")
        return [name.decode() for name, id in zip(names[::2], names[1::2], strict=True) if not id.startswith(b"~")]

    @operation
    def counts(self, name: str, *, limit: int = 10_000) -> Op[Counts]:
        reply: Any = yield from self._in_queue(name, "queues/counts")

        delayed, ready, leased, dead = (Counted.up_to(limit, n) for n in reply[:4])
        return Counts(delayed=delayed, ready=ready, leased=leased, dead=dead, lag_for=since(reply[4]))

    @operation
    def pause(self, name: str, *, reason: str | None = None) -> Op[QueueInfo]:
        return info_of((yield from self._in_queue(name, "queues/pause", reason=reason)))

    @operation
    def resume(self, name: str) -> Op[QueueInfo]:
        return info_of((yield from self._in_queue(name, "queues/resume")))

    @operation
    def now(self) -> Op[datetime]:
        pinned = self._context.clock.pinned()
        if pinned is not None:
            return pinned
        seconds, microseconds = yield from self._registry("queues/now")
        return instant(int(seconds) * 1_000_000 + int(microseconds))

    def _forget(self, *names: str) -> None:
        for name in names:
            self._context.ids.pop(name, None)
