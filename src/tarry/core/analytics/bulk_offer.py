"""Bulk offers in two steps: many tasks stage rows, one driver merges them, all at once or each task by itself.

The id of a write is its idempotency key: a write is merged at most once, and repeating it returns the first outcome."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from tarry.core.errors import InvalidInput, TarryError
from tarry.core.messages.model import REPLACE, Conflict
from tarry.core.messages.outcomes import Outcome

WRITE_ID_LENGTH = 200
STAGED_FOR = timedelta(days=1)
"""How long staged rows wait for their merge before they count as abandoned."""
MERGES = 8
"""How many tasks of a write are stored at the same time, at most, if each is stored by itself."""
_SAMPLES = 5

StagedRow = tuple[
    str, str, bytes, str | None, int | None, float | None, int, str | None, bytes | None, int | None, bool
]
"""queue, key, payload, content type, due at (µs since 1970) or after (s), priority, type, headers (JSON), max attempts,
whether the key was generated.

A plain tuple: a million of them pass through a task, and `zip` creates them faster than any named type."""


class StagingLost(TarryError):
    """Staged rows no longer exist, and were not offered."""


class PartlyStored(TarryError):
    """A write that stores its tasks one by one has stored some of them only."""


class BadRows(InvalidInput):
    """Rows that cannot be accepted; nothing was stored."""


@dataclass(frozen=True, slots=True)
class InvalidRows:
    """Invalid rows of one task: their number, and a few samples."""

    rows: int = 0
    samples: tuple[str, ...] = ()

    def __add__(self, other: InvalidRows) -> InvalidRows:
        return InvalidRows(self.rows + other.rows, (self.samples + other.samples)[:_SAMPLES])

    def __bool__(self) -> bool:
        return self.rows > 0

    def error(self, write_id: str) -> BadRows:
        some = "; ".join(self.samples)
        more = "" if self.rows <= len(self.samples) else f"; and {self.rows - len(self.samples):,} more"
        rows = "1 row" if self.rows == 1 else f"{self.rows:,} rows"
        return BadRows(f"{rows} of write {write_id!r} cannot be offered, and nothing was stored: {some}{more}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One execution of a write. `stream` and `batch` if it belongs to a streaming query."""

    write_id: str
    run: UUID
    stream: str | None = None
    batch: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.write_id) <= WRITE_ID_LENGTH or "\x00" in self.write_id:
            raise InvalidInput(
                f"a write_id has 1 to {WRITE_ID_LENGTH} characters and no NUL, not {self.write_id!r:.120}"
            )


class CommitUnit(StrEnum):
    """What is stored atomically."""

    WRITE = "write"
    TASK = "task"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    conflict: Conflict = REPLACE
    create_queues: bool = True
    """Whether a missing queue is created with the default settings."""
    commit: CommitUnit = CommitUnit.WRITE


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """The rows staged by one attempt of one task; the driver counts them before it merges."""

    attempt: int
    part: int
    rows: int
    size: int
    """Bytes of keys and payloads."""
    queues: frozenset[str]
    first: str
    last: str
    """The smallest and the largest key."""


class WriteState(StrEnum):
    STAGING = "staging"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkWrite:
    """The stored state of a write. Once committed, rows = created + updated + ignored + superseded."""

    write_id: str
    state: WriteState
    rows: int = 0
    created: int = 0
    updated: int = 0
    ignored: int = 0
    superseded: int = 0
    committed_at: datetime | None = None

    @property
    def committed(self) -> bool:
        return self.state is WriteState.COMMITTED

    def line(self) -> str:
        if not self.committed:
            return f"write {self.write_id}: {self.state.value}"
        counts = {outcome.value: getattr(self, outcome.value) for outcome in Outcome}
        outcome = ", ".join(f"{n:,} {word}" for word, n in counts.items() if n) or "nothing to do"
        return f"write {self.write_id}: {self.rows:,} rows, {outcome}"


def disjoint_groups(staged: Sequence[Staged]) -> list[list[Staged]]:
    """Group attempts whose key ranges overlap; the groups are in key order.

    Each group is merged by its own statement, and all rows are still locked in key order. Sorted input gives one group
    per task; unsorted input gives a single group."""
    groups: list[list[Staged]] = []
    end: str | None = None
    for attempt in sorted(staged, key=lambda each: each.first):
        if end is None or attempt.first > end:
            groups.append([])
            end = attempt.last
        groups[-1].append(attempt)
        end = max(end, attempt.last)
    return groups
