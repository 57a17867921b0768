"""Requests as values, and operations made of them, which the blocking and the awaiting store run."""

import os
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, Concatenate, NoReturn, ParamSpec, TypeVar

import msgspec

from tarry.core import errors
from tarry.core.ids import uuid7
from tarry.core.operation import Operation

A = ParamSpec("A")
R = TypeVar("R")
S = TypeVar("S")
R_co = TypeVar("R_co", covariant=True)

TRANSIENT = (429, 502, 503, 504)
"""Statuses after which a retry may succeed."""
_ERRORS: dict[Any, type[errors.TarryError]] = {
    "invalid_payload": errors.InvalidPayload,
    "invalid_state": errors.InvalidState,
    "lock_timeout": errors.LockTimeout,
    "queue_full": errors.QueueFull,
}


@dataclass(frozen=True, slots=True)
class Call:
    method: str
    path: str
    body: Any = None
    params: Mapping[str, Any] | None = None
    """Of the query; those that are None are left out."""
    queue: str = ""
    """The queue or schedule that the broker may report as unknown."""
    wait_s: float = 0.0
    """How much longer than usual the reply may take."""
    key: str | None = None
    """The idempotency key, the same for every try: the broker executes the request once."""


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    body: bytes
    tries: int = 1
    """After more than one, an earlier request may have been executed, too."""

    def read(self, kind: type[R]) -> R:
        """The body as a struct of `tarry.wire`, or as a core value."""
        return msgspec.json.decode(self.body, type=kind, strict=False)  # durations are seconds

    @property
    def problem(self) -> dict[str, Any]:
        try:
            return msgspec.json.decode(self.body, type=dict[str, Any])
        except msgspec.MsgspecError:
            return {}


Op = Generator[Call, Reply, R]


@dataclass(frozen=True, slots=True, eq=False)
class HttpOperation(Operation[R_co]):
    start: Callable[[], Op[R_co]]


def operation(make: Callable[Concatenate[S, A], Op[R]]) -> Callable[Concatenate[S, A], HttpOperation[R]]:
    """Decorate a method of a role that is a generator of calls."""

    @wraps(make)
    def method(self: S, /, *args: A.args, **options: A.kwargs) -> HttpOperation[R]:
        return HttpOperation(lambda: make(self, *args, **options))

    return method


def reply_to(call: Call, *expected: str) -> Op[Reply]:
    """`expected`: codes of problems that are results here, and not errors."""
    reply = yield call
    if reply.status < 400 or (expected and reply.problem.get("code") in expected):
        return reply
    raise_problem(reply, call)


def fetch(kind: type[R], call: Call) -> Op[R]:
    return (yield from reply_to(call)).read(kind)


def fetch_unless(code: str, kind: type[R], call: Call) -> Op[R | None]:
    """None if the broker responds with a problem of this code."""
    reply = yield from reply_to(call, code)
    return reply.read(kind) if reply.status == 200 else None


def fetch_pages(kind: type[Any], rows: str, call: Call, limit: int, most: int) -> Op[list[Any]]:
    """Up to `limit` values of the field `rows`, in pages of at most `most`. One request at least: it checks the queue."""
    values: list[Any] = []
    params = {**(call.params or {})}
    while True:
        params["limit"] = max(1, min(limit - len(values), most))
        page = yield from fetch(kind, replace(call, params=params))
        values += [row.core() for row in getattr(page, rows)]
        if page.next is None or len(values) >= limit:
            return values[: max(limit, 0)]
        params["after"] = page.next


def queue_call(method: str, queue: str, path: str = "", body: Any = None, **options: Any) -> Call:
    """A call about a queue. A queue named `..` must not be a step up in the path."""
    name = queue if queue.strip(".") else queue.replace(".", "%2E")
    return Call(method, f"/v1/queues/{name}{path}", body, queue=queue, **options)


def new_key() -> str:
    """An idempotency key. Those of one moment are neighbours in an index."""
    return uuid7(time.time_ns(), os.urandom(8))


def raise_problem(reply: Reply, call: Call) -> NoReturn:
    problem = reply.problem
    code, hint = problem.get("code"), problem.get("hint")
    detail = problem.get("detail") or f"the response has status {reply.status}"
    if code == "unknown_queue":
        raise errors.UnknownQueue(call.queue)
    if code == "unknown_schedule":
        raise errors.UnknownSchedule(call.queue)
    if code in _ERRORS:
        raise _ERRORS[code](detail, hint=hint)
    if reply.status in (400, 413, 415, 422):
        raise errors.InvalidInput(detail, hint=hint)
    if reply.status in TRANSIENT:
        raise errors.StoreUnavailable(f"the broker is not available at the moment: {detail}", hint=hint)
    raise errors.InvalidState(f"the broker refused: {detail}", hint=hint)
