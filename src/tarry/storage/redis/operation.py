"""Operations of the Redis stores: generators of script calls, each in one cluster slot.

A queue has an id, which is the hash tag of its keys and never changes, so a queue can be renamed without moving a message.
The registry maps names to ids. Each store caches the ids, and a script replies nil if its queue no longer has the name."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from functools import wraps
from typing import Any, Concatenate, Final, LiteralString, NamedTuple, ParamSpec, Protocol, TypeVar

import msgspec

from tarry.core.clock import Clock
from tarry.core.errors import LockTimeout, UnknownQueue
from tarry.core.limits import check_queue_name
from tarry.core.maintenance.leadership import Leadership
from tarry.core.messages.retry import Retry
from tarry.core.missing_queues import warn_of_polled
from tarry.core.operation import Operation
from tarry.core.settings import QueueSettings, StoreSettings
from tarry.storage.redis.script import Script, script

A = ParamSpec("A")
R = TypeVar("R")
Role = TypeVar("Role", bound="RedisRole")
R_co = TypeVar("R_co", covariant=True)

REGISTRY: Final = "tarry:{registry}"
"""The keys that belong to no queue: names, schedules, API keys, jobs."""
_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LOOKUPS = 5
"""Maximum number of lookups of a name per call: the queue may be renamed or deleted between lookup and script."""


def micros(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND


def instant(microseconds: int | float | str | bytes) -> datetime:
    return _EPOCH + timedelta(microseconds=int(microseconds))


def duration(value: timedelta | None) -> int | None:
    return None if value is None else value // _MICROSECOND


def since(microseconds: int | float | str | bytes) -> timedelta:
    return timedelta(microseconds=int(microseconds))


class Repetition(IntEnum):
    """Whether a request may have been executed before."""

    FIRST = 0
    FIRST_OF_DRIVER = 1
    """The cluster driver may repeat it with the same arguments."""
    REPEATED = 2


class Params(Protocol):
    """Parameters of a frequently called script, in a binary form of its own."""

    def packed(self, slot: str, request: int, again: Repetition) -> bytes: ...


class ScriptCall(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One script call. The reply is None if the queue at `key` does not have the name in `params`."""

    script: Script
    key: str
    params: dict[str, Any] | Params
    payloads: Sequence[bytes] = ()


Op = Generator[ScriptCall, Any, R]


@dataclass(slots=True, eq=False)
class RedisOperation(Operation[R_co]):
    start: Callable[[], Op[R_co]]


class QueueIds(NamedTuple):
    id: str | None
    former: tuple[str, ...]
    """Queues that had the name before: leases acquired under the name are settled there."""
    reservation: int | None = None
    """Number of the reservation, if the name is reserved for the queue."""


@dataclass(slots=True)
class RoleContext:
    """State shared by the roles of one store."""

    clock: Clock
    settings: StoreSettings
    ids: dict[str, QueueIds] = field(default_factory=dict[str, QueueIds])
    """Cache by name. A stale id is harmless: the script compares the name."""


class RedisRole:
    def __init__(self, context: RoleContext) -> None:
        self._context = context

    def _now(self) -> int | None:
        pinned = self._context.clock.pinned()
        return None if pinned is None else micros(pinned)

    def _result(self, value: R) -> RedisOperation[R]:
        """An operation without a call."""

        def start() -> Op[R]:
            yield from ()
            return value

        return RedisOperation(start)

    def _registry(self, name: LiteralString, payloads: Sequence[bytes] = (), /, **params: Any) -> Op[Any]:
        return (yield ScriptCall(script(name), REGISTRY, {"now": self._now(), **params}, payloads))

    def _by_id(self, id: str, name: LiteralString, payloads: Sequence[bytes] = (), /, **params: Any) -> Op[Any]:
        return (yield ScriptCall(script(name), key_of(id), {"now": self._now(), **params}, payloads))

    def _in_queue(
        self, queue: str, name: LiteralString, payloads: Sequence[bytes] = (), /, *, create: bool = False, **params: Any
    ) -> Op[Any]:
        """Call a script on the queue with this name. `create`: create a missing queue, as offers and polls do."""
        return self._with_params(queue, name, {"queue": queue, "now": self._now(), **params}, payloads, create=create)

    def _with_params(
        self,
        queue: str,
        name: LiteralString,
        params: dict[str, Any] | Params,
        payloads: Sequence[bytes],
        *,
        create: bool,
    ) -> Op[Any]:
        for looked_up in range(LOOKUPS):
            id, _, reservation = self._context.ids.get(queue) or (yield from self._ids(queue))
            if id is None:
                if not create or not self._context.settings.create_queues:
                    raise UnknownQueue(queue)
                id, _, is_new = yield from self._create(queue, QueueSettings())
                if is_new and name in ("messages/poll", "messages/poll_one"):
                    warn_of_polled(queue)
            reply = yield ScriptCall(script(name), key_of(id), params, payloads)
            if reply is not None:
                return reply
            yield from self._lost_name(queue, id, reservation, looked_up)
        raise in_change(queue)

    def _lost_name(self, queue: str, id: str, reservation: int | None, looked_up: int) -> Op[None]:
        """Look the name up again. If it still leads to a queue that does not have it, the process that renamed or deleted the
        queue, or reserved the name for it, has not completed that yet, or has ended before: change the registry."""
        self._context.ids.pop(queue, None)
        if looked_up > 1:
            new_name = (yield from self._by_id(id, "queues/name", queue=queue, reservation=reservation)).decode()
            params = {"new_name": new_name or None, "deleting": not new_name, "reservation": reservation}
            yield from self._registry("queues/unregister", name=queue, id=id, **params)

    def _leads(self, leadership: Leadership | None) -> Op[bool]:
        """Whether a leadership is valid. None is valid: the work needs no leader."""
        if leadership is None:
            return True
        return bool((yield from self._registry("maintenance/leads", name=leadership.name, fence=leadership.fence)))

    def _remove_deleted(self, id: str, most: float = math.inf) -> Op[int]:
        """Remove the messages of a deleted queue, and then the queue, until it is gone or `most` messages were removed."""
        removed, cursors = 0, ["0", "0"]
        while removed < most:
            n, reached = yield from self._by_id(id, "queues/remove", cursors=cursors)
            removed, cursors = removed + n, [cursor.decode() for cursor in reached]
            if not cursors:
                yield from self._registry("maintenance/removed", id=id)
                break
        return removed

    def _ids(self, queue: str) -> Op[QueueIds]:
        ids = self._context.ids.get(queue)
        if ids is None:
            id, former, number = yield from self._registry("queues/resolve", name=queue)
            former_ids = tuple(former.decode().split(",")) if former else ()
            ids = QueueIds(id.decode() or None, former_ids, int(number) if number else None)
            if ids.id is not None:
                self._context.ids[queue] = ids
        return ids

    def _create(self, queue: str, settings: QueueSettings) -> Op[tuple[str, Any, bool]]:
        """Create a queue unless the name is taken. Returns the id with the name, the new record, and whether it is used."""
        id = uuid.uuid4().hex[:15]
        record = yield from self._by_id(id, "queues/create", queue=check_queue_name(queue), settings=stored(settings))
        winner = (yield from self._registry("queues/register", name=queue, id=id)).decode()
        if winner != id:
            yield from self._by_id(id, "queues/discard")
        self._context.ids.pop(queue, None)
        return winner, record, winner == id


def in_change(queue: str) -> LockTimeout:
    return LockTimeout(f"the queue {queue!r} is being renamed or deleted", hint="retry the request")


def key_of(id: str) -> str:
    return f"tarry:{{{id}}}"


def operation(make: Callable[Concatenate[Role, A], Op[R]]) -> Callable[Concatenate[Role, A], RedisOperation[R]]:
    """Turn a generator method of a role into one that returns an operation."""

    @wraps(make)
    def method(self: Role, /, *args: A.args, **options: A.kwargs) -> RedisOperation[R]:
        return RedisOperation(lambda: make(self, *args, **options))

    return method


def stored(settings: QueueSettings) -> dict[str, Any]:
    """Settings as fields of the queue's record; None for fields to delete."""
    values = {
        "lease_for": duration(settings.lease_for),
        "max_attempts": settings.max_attempts,
        "retry": stored_retry(settings.retry),
        "journal": settings.journal.value,
        "retention_for": duration(settings.retention_for),
        "target_lag_for": duration(settings.target_lag_for),
        "max_depth": settings.max_depth,
        "description": settings.description,
        "handler_max_attempts": settings.handler_max_attempts,
    }
    return {name: value if value is None else str(value) for name, value in values.items()}


def json_text(value: Any) -> str:
    """Canonical JSON: equal values have equal text."""
    return msgspec.json.encode(value, order="sorted").decode()


def stored_retry(retry: Retry | None) -> str | None:
    return None if retry is None else json_text(retry.as_data())
