"""The recording format: what each client called and what was answered, written so that a killed client leaves a true prefix.

Two lines of JSON per operation, each a single unbuffered write to a file that only this client appends to:

    [n, at, name, queue, transaction, *facts]     before the call; n counts from 1, transaction is 0 outside of one
    [-n, at, status, *results]                    after it

`at` is in microseconds of the machine's clock. It is computed from CLOCK_MONOTONIC and one offset for the whole run, so a
client whose own wall clock is wrong still writes true times. `retried`: the client, or a broker or worker in between, may
have sent it more than once. An operation is one call of the public API.

| name | facts | results |
|---|---|---|
| offer | [[key or null, payload, delay µs, policy], …], retried | [outcome, …] |
| poll | n | [[key, payload, version, token, attempt, due_at, leased_at, lease_until], …] |
| ack, touch, bury, nack, release | [[key, token], …], delay µs, retried | [settled, …] |
| read | key | payload or null, version or null |
| contains, drop | key | bool |
| edit | key, payload | edited |
| purge, redrive, discard | | count |
| pause, resume, rename, look | | |
| commit, rollback | | |
| effect | payload | |
| put | schedule, period µs | config hash |
| feed | position or null | [[id, at], …], gap or null, position, complete |
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

OK = "ok"
UNKNOWN = "unknown"
"""No reply came: it may have happened, may happen later, or never."""
REFUSED = "refused"
"""It failed with an error after which nothing was changed."""
UNDONE = "undone"
"""Part of a transaction that was rolled back. Never written; set when a history is read."""

OFFSET_VARIABLE = "CHAOS_CLOCK_OFFSET"
_offset_us = int(os.environ.get(OFFSET_VARIABLE) or time.time_ns() // 1_000 - time.monotonic_ns() // 1_000)
_monotonic_ns = time.monotonic_ns


def clock_offset() -> str:
    """For the environment of client processes, so that all of them write the same clock."""
    return str(_offset_us)


def now_us() -> int:
    return _monotonic_ns() // 1_000 + _offset_us


class Recorder:
    def __init__(self, path: Path, *, numbers_from: int = 0) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._numbers = numbers_from

    def begin(self, name: str, queue: str, *facts: Any, transaction: int = 0, at: int | None = None) -> int:
        self._numbers += 1
        self._write([self._numbers, now_us() if at is None else at, name, queue, transaction, *facts])
        return self._numbers

    def end(self, number: int, status: str, *results: Any) -> None:
        self._write([-number, now_us(), status, *results])

    def _write(self, line: list[Any]) -> None:
        os.write(self._file, msgspec.json.encode(line) + b"\n")


@dataclass(slots=True)
class Operation:
    """`returned` is infinite where no reply came."""

    client: str
    name: str
    queue: str
    facts: list[Any]
    invoked: int
    returned: float = float("inf")
    status: str = UNKNOWN
    result: list[Any] = field(default_factory=list)
    transaction: int = 0


@dataclass(frozen=True, slots=True)
class Fault:
    kind: str
    begun: int
    ended: int
    crash: bool = False
    """The database lost what it had not flushed. Leases commit without a flush: the last ones may be gone."""
    forgets: bool = False
    """A standby that was behind took over: whatever was answered since `begun` may be gone. Only this may lose."""
    detail: str = ""


@dataclass(slots=True)
class Left:
    """What was in the database when everything was over."""

    live: list[tuple[str, str, str, int]] = field(default_factory=list)
    """Queue, key, payload, version."""
    dead: list[tuple[str, str, str, int, int]] = field(default_factory=list)
    """Queue, key, payload, version, attempt."""
    effects: list[str] = field(default_factory=list)
    """Payloads whose effect was committed in the transaction of their ack, one entry per row."""
    planned_until: int = 0
    """Every tick of every schedule up to this instant has been planned."""


@dataclass(slots=True)
class History:
    operations: list[Operation]
    faults: list[Fault] = field(default_factory=list)
    left: Left | None = None
    """None while the run is in progress: lost messages are not counted then."""


def read_faults(folder: Path) -> list[Fault]:
    path = folder / "faults.log"
    return [msgspec.json.decode(line, type=Fault) for line in path.read_bytes().splitlines()] if path.exists() else []


def read(folder: Path) -> list[Operation]:
    operations: list[Operation] = []
    for path in sorted(folder.glob("*.history")):
        operations += with_transactions(read_one(path))
    return operations


def read_one(path: Path) -> Iterator[Operation]:
    """A last line that was cut off belongs to an operation that was never finished."""
    operations: dict[int, Operation] = {}
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                break
            number, at, word, *rest = msgspec.json.decode(line)
            if number > 0:
                queue, transaction, *facts = rest
                operations[number] = Operation(path.stem, word, queue, facts, at, transaction=transaction)
            else:
                operation = operations[-number]
                operation.status, operation.result = word, rest
                if word == OK:
                    operation.returned = at
    yield from operations.values()


def with_transactions(operations: Iterable[Operation]) -> list[Operation]:
    """Operations of one client, those inside transactions as their commit decided: done when it returned, unknown where it
    was not answered, undone where it was never sent."""
    whole = list(operations)
    commits = {op.transaction: op for op in whole if op.name == "commit" and op.status != REFUSED}
    for op in whole:
        if not op.transaction or op.name in ("commit", "rollback"):
            continue
        commit = commits.get(op.transaction)
        if commit is None:
            op.status, op.returned = UNDONE, float("inf")
        elif op.status == OK:
            op.status, op.returned = commit.status, commit.returned
    return whole
