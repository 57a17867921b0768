"""What a client did and what it was told, written down as it happens: a killed client leaves a truthful prefix.

Two lines per operation, one before the call and one after it, each a single unbuffered write. Everything runs on one
machine, so one clock orders what clients and the database say: CLOCK_REALTIME, in microseconds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from tarry.core.messages import Lease

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)

OK = "ok"
UNKNOWN = "unknown"
"""The client got no answer: it may or may not have happened."""


def now_us() -> int:
    return time.time_ns() // 1_000


def us(at: datetime) -> int:
    return (at - _EPOCH) // _US


def leased(lease: Lease[bytes]) -> list[Any]:
    """A lease as it is written down, with what the database said about it."""
    return [
        lease.key, lease.payload.decode(), lease.version, str(lease.token), lease.attempt, us(lease.due_at),
        us(lease.leased_at), us(lease.lease_until),
    ]  # fmt: skip


class Recorder:
    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._numbers = 0

    def begin(self, op: str, *facts: Any) -> int:
        self._numbers += 1
        self._write([self._numbers, now_us(), op, *facts])
        return self._numbers

    def end(self, number: int, answer: str, *facts: Any) -> None:
        self._write([-number, now_us(), answer, *facts])

    def _write(self, line: list[Any]) -> None:
        os.write(self._file, msgspec.json.encode(line) + b"\n")


@dataclass(slots=True)
class Operation:
    """`returned` is for ever where nobody heard the answer."""

    client: str
    name: str
    facts: list[Any]
    invoked: int
    returned: float = float("inf")
    answer: str = UNKNOWN
    result: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Fault:
    kind: str
    begun: int
    ended: int

    @property
    def loses_leases(self) -> bool:
        """A lease commits without waiting for the disk: the last ones may be gone after a crash of the database."""
        return self.kind in CRASHES


CRASHES = ("postmaster killed", "backend killed", "stopped at once")


@dataclass(slots=True)
class Left:
    """What was in the database when everything was over: payloads of live messages, and of dead ones."""

    live: list[str] = field(default_factory=list)
    dead: list[tuple[str, int, int]] = field(default_factory=list)
    """Payload, version, attempt."""


@dataclass(slots=True)
class History:
    operations: list[Operation]
    faults: Sequence[Fault] = ()
    left: Left = field(default_factory=Left)
    most_attempts: int | None = None


def read(folder: Path) -> list[Operation]:
    return [operation for path in sorted(folder.glob("*.history")) for operation in _read_one(path)]


def _read_one(path: Path) -> Iterable[Operation]:
    """A last line that was cut off is one that was never finished."""
    lines = path.read_bytes().split(b"\n")[:-1]
    found: dict[int, Operation] = {}
    for line in lines:
        number, at, word, *facts = msgspec.json.decode(line)
        if number > 0:
            found[number] = Operation(path.stem, word, facts, at)
        else:
            operation = found[-number]
            operation.answer, operation.result = word, facts
            if word == OK:
                operation.returned = at
    return found.values()
