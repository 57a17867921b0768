"""Bulk offers in two steps: many tasks stage rows, one driver merges them. Values, and the port of the database side.

A write has a name. Under one name at most one merge ever happens: saying it again gives the outcome of the first time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol
from uuid import UUID

from tarry.core.errors import InvalidInput, TarryError
from tarry.core.messages import REPLACE, Conflict

WRITE_ID_LENGTH = 200
STAGED_FOR = timedelta(days=1)
"""How long staged rows wait for their merge before they count as left behind."""
_SAMPLES = 5

StagedRow = tuple[str, str, bytes, str | None, int | None, float | None, int, str | None, bytes | None, int | None]
"""queue, key, payload, content type, due at (µs since 1970) or delay (s), priority, type, headers (JSON), max attempts.

A plain tuple: a million of them pass through a task, and `zip` makes them faster than anything with a name.
"""


class StagingLost(TarryError):
    """Rows that tasks have staged are not there any more; nothing was merged."""


class BadRows(InvalidInput):
    """Rows that cannot be accepted; nothing was stored."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """What was wrong with the rows of one task: how many, and a few of them."""

    rows: int = 0
    samples: tuple[str, ...] = ()

    def __add__(self, other: Trouble) -> Trouble:
        return Trouble(self.rows + other.rows, (self.samples + other.samples)[:_SAMPLES])

    def __bool__(self) -> bool:
        return self.rows > 0

    def error(self, write_id: str) -> BadRows:
        some = "; ".join(self.samples)
        more = "" if self.rows <= len(self.samples) else f"; and {self.rows - len(self.samples):,} more"
        rows = "1 row" if self.rows == 1 else f"{self.rows:,} rows"
        return BadRows(f"{rows} of write {write_id!r} cannot be offered, and nothing was stored: {some}{more}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One execution of a named write. `stream` and `batch` where the name comes from a streaming query."""

    write_id: str
    run: UUID
    stream: str | None = None
    batch: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.write_id) <= WRITE_ID_LENGTH or "\x00" in self.write_id:
            raise InvalidInput(
                f"a write_id has 1 to {WRITE_ID_LENGTH} characters and no NUL, not {self.write_id!r:.120}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    conflict: Conflict = REPLACE
    create_queues: bool = True
    """Whether a queue that is not there comes into being with the default settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """What one attempt of one task has staged; the driver counts it before it merges."""

    attempt: int
    part: int
    rows: int
    size: int
    """Bytes of keys and payloads."""
    queues: frozenset[str]
    first: tuple[str, str]
    last: tuple[str, str]
    """The smallest and the largest (queue, key)."""


class WriteState(StrEnum):
    STAGING = "staging"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkWrite:
    """A write as the database knows it. Once it is committed, rows = created + updated + ignored + superseded."""

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
        counts = (
            (n, word)
            for n, word in (
                (self.created, "created"),
                (self.updated, "updated"),
                (self.ignored, "ignored"),
                (self.superseded, "superseded"),
            )
            if n
        )
        told = ", ".join(f"{n:,} {word}" for n, word in counts) or "nothing to do"
        return f"write {self.write_id}: {self.rows:,} rows, {told}"


class Staging(Protocol):
    """One attempt of one task at work."""

    committed: bool
    """The write was merged before: whatever is added now would be thrown away."""

    def add(self, rows: Iterable[StagedRow]) -> None:
        """In one short transaction: nothing stays open while the next rows are computed."""
        ...

    def staged(self) -> Staged | None:
        """None: there were no rows."""
        ...


class Sinking(Protocol):
    def begin(self, write: Write) -> SinkWrite:
        """Note that it begins; the answer says whether there is still something to do."""
        ...

    def attempt(self, write: Write, part: int) -> AbstractContextManager[Staging]: ...

    def commit(self, write: Write, staged: Sequence[Staged], rules: Rules, *, now: datetime | None = None) -> SinkWrite:
        """Merge what these attempts have staged, all or nothing, at most once for each write_id."""
        ...

    def abort(self, write: Write) -> None:
        """Forget what this run has staged."""
        ...

    def outcome(self, write_id: str) -> SinkWrite | None: ...

    def sweep(self, staged_for: timedelta = STAGED_FOR) -> int:
        """Remove what dead tasks and dead drivers have left behind; how many attempts that was."""
        ...


def disjoint_groups(staged: Sequence[Staged]) -> list[list[Staged]]:
    """Attempts whose ranges of keys overlap stand together; the groups follow each other in the order of keys.

    Each group is merged by a statement of its own, and yet all rows are locked in one order. Sorted input gives one group
    per task; unsorted input gives a single one.
    """
    groups: list[list[Staged]] = []
    end: tuple[str, str] | None = None
    for attempt in sorted(staged, key=lambda each: each.first):
        if end is None or attempt.first > end:
            groups.append([])
            end = attempt.last
        groups[-1].append(attempt)
        end = max(end, attempt.last)
    return groups
