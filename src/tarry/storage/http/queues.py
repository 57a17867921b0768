"""Requests about queues."""

import sys
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TypeVar

from tarry.core.errors import InvalidState, UnknownQueue
from tarry.core.messages.model import Counts
from tarry.core.missing_queues import warn_of_polled
from tarry.core.settings import QueueInfo, QueueSettings
from tarry.storage.http.call import Call, Op, fetch, fetch_pages, new_key, operation, queue_call, reply_to
from tarry.wire import queues as wire
from tarry.wire.base import Now

R = TypeVar("R")


class HttpQueues:
    @operation
    def create(self, name: str, settings: QueueSettings, *, exist_ok: bool) -> Op[QueueInfo]:
        return _create(name, settings, exist_ok=exist_ok)

    @operation
    def edit(self, name: str, settings: QueueSettings, *, only: frozenset[str]) -> Op[QueueInfo]:
        return _info(queue_call("PATCH", name, body=wire.QueueChanges.of(settings, only)))

    @operation
    def rename(self, name: str, new_name: str) -> Op[QueueInfo]:
        return _info(queue_call("POST", name, "/rename", wire.RenameRequest(new_name), key=new_key()))

    @operation
    def delete(self, name: str, *, force: bool) -> Op[None]:
        call = queue_call("DELETE", name, params={"force": "true"} if force else None)
        reply = yield from reply_to(call, "unknown_queue")
        if reply.status == 404 and reply.tries == 1:  # after a retry, the first try has deleted it
            raise UnknownQueue(name)

    @operation
    def info(self, name: str) -> Op[QueueInfo]:
        return _info(queue_call("GET", name, params={"count_to": 0}))

    @operation
    def infos(self) -> Op[list[QueueInfo]]:
        return fetch_pages(wire.Queues, "queues", Call("GET", "/v1/queues"), sys.maxsize, 100)

    @operation
    def counts(self, name: str, *, limit: int = 10_000) -> Op[Counts]:
        params = {"count_to": max(0, min(limit, 1_000_000))}
        return (yield from fetch(wire.CountedQueue, queue_call("GET", name, params=params))).counts

    @operation
    def pause(self, name: str, *, reason: str | None = None) -> Op[QueueInfo]:
        return _info(queue_call("POST", name, "/pause", wire.ReasonRequest(reason)))

    @operation
    def resume(self, name: str) -> Op[QueueInfo]:
        return _info(queue_call("POST", name, "/resume"))

    @operation
    def now(self) -> Op[datetime]:
        return datetime.fromisoformat((yield from fetch(Now, Call("GET", "/v1/now"))).now)


def _create(name: str, settings: QueueSettings, *, exist_ok: bool) -> Op[QueueInfo]:
    body = wire.QueueRequest.of(settings, name=name, exist_ok=exist_ok)
    return _info(Call("POST", "/v1/queues", body, queue=name, key=None if exist_ok else new_key()))


def _info(call: Call) -> Op[QueueInfo]:
    return (yield from fetch(wire.Queue, call)).core()


def in_queues(queues: Iterable[str], make: Callable[[], Op[R]], *, create: bool, by_poll: bool = False) -> Op[R]:
    """Run an op. If a queue is missing, create it as the library does, provided that this client's key may."""
    try:
        return (yield from make())
    except UnknownQueue:
        if not create:
            raise
        for queue in sorted(set(queues)):
            try:
                yield from _create(queue, QueueSettings(), exist_ok=True)
            except InvalidState:
                raise UnknownQueue(queue) from None
            if by_poll:
                warn_of_polled(queue)
    return (yield from make())
