"""State of the data pipeline: batches in a lake, day accounts, runs of jobs. Values, and the ports of the database that
stores them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import date, datetime
from enum import StrEnum
from typing import Any, Protocol

from tarry.core.errors import TarryError
from tarry.core.windows import NO_ROWS, Digest, Edge, Window


class ArchiveDamaged(TarryError):
    """Files that were read back differ from what was written, or from the journal."""


class OtherCluster(TarryError):
    """A position in the journal of another (or restored) database cluster."""


class BatchState(StrEnum):
    PLANNED = "planned"
    """Its window is decided; files may or may not exist. Not readable."""
    DURABLE = "durable"
    """Written, read back, equal to the journal."""
    PRUNED = "pruned"
    """Durable, and no longer in the journal."""
    ABANDONED = "abandoned"
    """The run that planned it died; the window was planned again under another number."""
    REPLACED = "replaced"
    """Its rows are now in a compaction."""


READABLE = frozenset({BatchState.DURABLE, BatchState.PRUNED})


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeFile:
    """One Parquet file: its path (relative to the lake) and its content."""

    path: str
    day: date
    queue_id: int
    queue: str
    rows: int
    checksum: int
    bytes: int

    @property
    def digest(self) -> Digest:
        return Digest(self.rows, self.checksum)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    number: int
    lake: str
    kind: str
    """`archive` or `compaction`."""
    place: int
    """The position in the chain of windows: a compaction takes the place of the last batch that it replaces."""
    start: Edge
    end: Edge
    system_id: str
    state: BatchState
    files: tuple[LakeFile, ...] = ()
    digest: Digest = NO_ROWS
    min_at: datetime | None = None
    max_at: datetime | None = None
    run: int | None = None

    @property
    def window(self) -> Window:
        """The window of an archive batch; a compaction spans several."""
        return Window(self.start, self.end)

    @property
    def directory(self) -> str:
        return f"events/batch={self.number:08d}"


@dataclass(frozen=True, slots=True)
class LakeHead:
    """The position that a lake has reached."""

    lake: str
    edge: Edge
    system_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedDay:
    """The account of one day in one lake. Exactly what is archived and not pruned must be in the journal."""

    day: date
    archived: Digest
    pruned: Digest
    retired: Digest
    """Removed from the lake by retention."""


@dataclass(slots=True)
class Run:
    """One run of one job, open until its `with` block ends."""

    id: int
    job: str
    started_at: datetime
    still_alone: Callable[[], None]
    """Raises if the lock of the run was lost. Jobs of many steps call it before each; it is also called at the end."""
    summary: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The job's result, stored with the run when it ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRun:
    id: int
    job: str
    started_at: datetime
    ended_at: datetime | None
    state: str
    """running, done, failed or lost (its process died)."""
    summary: Mapping[str, Any]
    error: str | None

    @property
    def lake(self) -> str | None:
        """The lake of the run, if known."""
        return self.summary.get("lake")

    @property
    def failed(self) -> bool:
        """Ended without completing: by an error, or with its process."""
        return self.state in ("failed", "lost")


class Manifest(Protocol):
    """The content of a lake, and the runs that wrote it. Every method is one short transaction."""

    def run(self, job: str, *, alone_at: str | None = None, lake: str | None = None) -> AbstractContextManager[Run]:
        """Record the start of a job, its lake and its end. Raises while the same job runs elsewhere or, if `alone_at`
        names another lock, while that lock is held elsewhere.
        """
        ...

    def last_run(self, job: str, lake: str | None = None) -> PastRun | None:
        """The last completed run; on this lake, if given."""
        ...

    def last_runs(self, jobs: Sequence[str]) -> list[PastRun]:
        """The last run of each of these jobs on each lake: completed, failed or running."""
        ...

    def batches(self, lake: str) -> list[Batch]:
        """The readable batches, in the order of the chain."""
        ...

    def head(self, lake: str) -> Batch | None:
        """The last batch of the chain."""
        ...

    def plan(self, lake: str, window: Window, system_id: str, run: int) -> Batch: ...
    def take_over(self, lake: str, run: int) -> Batch | None:
        """Plan the window of a dead run again under a new number; None if there is none."""
        ...

    def abandon_compactions(self, lake: str) -> None: ...
    def known_directories(self, lake: str) -> set[str]: ...
    def complete(self, batch: Batch, files: Sequence[LakeFile]) -> Batch:
        """Move a batch from planned to durable. Raises if another run has taken over."""
        ...

    def uncleared(self, lake: str) -> list[Batch]:
        """Abandoned batches, and replaced ones past their grace period, whose files may still exist."""
        ...

    def mark_cleared(self, numbers: Sequence[int]) -> None: ...
    def days(self, lake: str) -> list[ArchivedDay]: ...
    def horizons(self, lake: str) -> dict[int, date]:
        """By queue id: events before this day are not in the lake, because retention has removed them."""
        ...

    def days_since(self, lake: str, number: int) -> tuple[set[date], int]:
        """The days changed by archive batches after this number, and the newest number."""
        ...


class Housekeeping(Protocol):
    """Compaction, pruning and retention. Every method is one short transaction."""

    def plan_compaction(self, parts: Sequence[Batch], run: int) -> Batch: ...
    def replace(self, compaction: Batch, parts: Sequence[Batch], files: Sequence[LakeFile]) -> Batch:
        """Atomically make the compaction readable instead of its parts. Raises if one of them is gone."""
        ...

    def lakes(self) -> list[LakeHead]: ...
    def journal_days(self) -> dict[date, bool]:
        """The days before today that are in the journal, and whether each has its own partition."""
        ...

    def drop_day(self, day: date, rows: int) -> bool:
        """Drop a partition with exactly this many rows. False if it has others now, or is locked; then it stays
        unchanged.
        """
        ...

    def drop_overflow(self, day: date, edges: Sequence[Edge]) -> int: ...
    def mark_pruned(self) -> None: ...
    def retention(self) -> dict[int, date]:
        """By queue id: the first day of history to keep."""
        ...

    def retire(self, lake: str, taken: Mapping[Batch, Sequence[LakeFile]], horizons: Mapping[int, date]) -> None:
        """Remove files from the manifest. They may be deleted afterwards."""
        ...

    def begin_lake(self, lake: str) -> None: ...


def by_day(files: Sequence[LakeFile]) -> dict[date, Digest]:
    days: dict[date, Digest] = {}
    for file in sorted(files, key=lambda file: file.day):
        days[file.day] = days.get(file.day, Digest()) + file.digest
    return days


def readable_files(
    batches: Sequence[Batch],
    *,
    since: date | None = None,
    until: date | None = None,
    queues: Sequence[str] | None = None,
) -> Generator[LakeFile]:
    """The files of these days (both included) and queues."""
    for batch in batches:
        if batch.state in READABLE:
            for file in batch.files:
                inside = (since is None or file.day >= since) and (until is None or file.day <= until)
                if inside and (queues is None or file.queue in queues):
                    yield file
