"""Requests as values, and ops that are made of them: decided once, driven by a blocking and an awaiting shell."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import msgspec

from tarry.core.errors import (
    HeldUp,
    InvalidInput,
    InvalidPayload,
    Refused,
    StoreUnavailable,
    TarryError,
    UnknownQueue,
    UnknownSchedule,
)
from tarry.core.ids import uuid7

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Call:
    method: str
    path: str
    body: Any = None
    params: Mapping[str, Any] | None = None
    queue: str = ""
    """Or schedule: whose absence the answer may tell of."""
    wait_s: float = 0.0
    """How much longer than usual the answer may take."""
    key: str | None = None
    """Its Idempotency-Key, the same for every try: the broker does it once."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    tries: int = 1
    """How often it was asked for: after more than one, an earlier request may have been carried out, too."""

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


Op = Generator[Call, Answer, R]


def ask(call: Call, *, expected: tuple[str, ...] = ()) -> Op[Answer]:
    """`expected`: codes of problems that are answers here, and not errors."""
    answer = yield call
    if answer.status < 400 or (expected and code_of(answer) in expected):
        return answer
    _raise(answer, call)


def code_of(answer: Answer) -> str:
    try:
        said = msgspec.json.decode(answer.body)
    except msgspec.MsgspecError:
        return ""
    return str(said.get("code", "")) if isinstance(said, dict) else ""  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]


def named(queue: str) -> str:
    """A queue in a path. One named `..` is only a queue, and no step up."""
    return queue if queue.strip(".") else queue.replace(".", "%2E")


def drawn() -> str:
    """A key for a request. Those of one moment are neighbours, which an index likes."""
    return uuid7(time.time_ns(), os.urandom(8))


def is_passing(status: int) -> bool:
    """What may be over by the time of the next try."""
    return status in (429, 502, 503, 504)


def _raise(answer: Answer, call: Call) -> NoReturn:
    try:
        said: dict[str, Any] = msgspec.json.decode(answer.body, type=dict[str, Any])
    except msgspec.MsgspecError:
        said = {}
    code, detail, hint = said.get("code"), said.get("detail") or f"it answered {answer.status}", said.get("hint")
    if code == "unknown_queue":
        raise UnknownQueue(call.queue)
    if code == "unknown_schedule":
        raise UnknownSchedule(call.queue)
    kinds: dict[Any, type[TarryError]] = {"invalid_payload": InvalidPayload, "refused": Refused, "held_up": HeldUp}
    if code in kinds:
        raise kinds[code](detail, hint=hint)
    if answer.status in (400, 413, 415, 422):
        raise InvalidInput(detail, hint=hint)
    if is_passing(answer.status):
        raise StoreUnavailable(f"the broker cannot answer at the moment: {detail}", hint=hint)
    raise Refused(f"the broker refused: {detail}", hint=hint)
