"""What the data pipeline remembers: batches in a lake, accounts of days, runs of jobs. Values, and the ports behind which
the database keeps them."""

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
    """What was read back is not what was written, or not what the journal has."""


class OtherCluster(TarryError):
    """Positions in the journal belong to one database cluster; this one is another (or older) one."""


class BatchState(StrEnum):
    PLANNED = "planned"
    """Its window is decided; files may or may not be there. Nobody reads it."""
    DURABLE = "durable"
    """Written, read back, equal to the journal."""
    PRUNED = "pruned"
    """Durable, and the journal has let go of all of it."""
    ABANDONED = "abandoned"
    """The run that planned it died; the window was planned again under another number."""
    REPLACED = "replaced"
    """A compaction holds its rows now."""


READABLE = frozenset({BatchState.DURABLE, BatchState.PRUNED})


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeFile:
    """One Parquet file: where it is (relative to the lake) and what is in it."""

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
    """Where it stands in the chain of windows: a compaction takes the place of the last batch it replaces."""
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
        """Of an archive batch; a compaction spans several."""
        return Window(self.start, self.end)

    @property
    def directory(self) -> str:
        return f"events/batch={self.number:08d}"


@dataclass(frozen=True, slots=True)
class LakeHead:
    """How far a lake has come."""

    lake: str
    edge: Edge
    system_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedDay:
    """One day's account with one lake. What is archived and not pruned must be in the journal, and nothing else."""

    day: date
    archived: Digest
    pruned: Digest
    retired: Digest
    """What retention has removed from the lake."""


@dataclass(slots=True)
class Run:
    """One run of one job, open until its `with` block ends."""

    id: int
    job: str
    started_at: datetime
    still_alone: Callable[[], None]
    """Raises where the lock of the run was lost: for jobs of many steps, before each. It is asked at the end anyway."""
    summary: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What the job has to say; kept with the run when it ends."""


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
        """On which lake, if it has said so."""
        return self.summary.get("lake")

    @property
    def failed(self) -> bool:
        """Ended, and not completed: by an error, or with its process."""
        return self.state in ("failed", "lost")


class Manifest(Protocol):
    """What is in a lake, and who did it. Every method is one short transaction."""

    def run(self, job: str, *, alone_at: str | None = None, lake: str | None = None) -> AbstractContextManager[Run]:
        """Write down that a job runs, on which lake, and how it ended. Refused while the same job runs elsewhere, or, where
        `alone_at` names something else, while that is done elsewhere."""
        ...

    def last_run(self, job: str, lake: str | None = None) -> PastRun | None:
        """The last run that was completed; on this lake, if one is named."""
        ...

    def last_runs(self, jobs: Sequence[str]) -> list[PastRun]:
        """The last run of each of these jobs on each lake, whether it was completed, failed, or goes on."""
        ...

    def batches(self, lake: str) -> list[Batch]:
        """What may be read, in the order of the chain."""
        ...

    def head(self, lake: str) -> Batch | None:
        """The last of the chain."""
        ...

    def plan(self, lake: str, window: Window, system_id: str, run: int) -> Batch: ...
    def take_over(self, lake: str, run: int) -> Batch | None:
        """The window that a dead run left planned, planned again under a new number; None if nothing was left."""
        ...

    def abandon_compactions(self, lake: str) -> None: ...
    def known_directories(self, lake: str) -> set[str]: ...
    def complete(self, batch: Batch, files: Sequence[LakeFile]) -> Batch:
        """From planned to durable. Refused when another run has taken over meanwhile."""
        ...

    def uncleared(self, lake: str) -> list[Batch]:
        """Abandoned batches, and replaced ones that nobody can still be reading, whose files may be there."""
        ...

    def mark_cleared(self, numbers: Sequence[int]) -> None: ...
    def days(self, lake: str) -> list[ArchivedDay]: ...
    def horizons(self, lake: str) -> dict[int, date]:
        """By queue id: events before this day are not in the lake, because retention has removed them."""
        ...

    def days_since(self, lake: str, number: int) -> tuple[set[date], int]:
        """The days that archive batches after this number have touched, and the newest number."""
        ...


class Housekeeping(Protocol):
    """What keeps journal and lake small. Every method is one short transaction."""

    def plan_compaction(self, parts: Sequence[Batch], run: int) -> Batch: ...
    def replace(self, compaction: Batch, parts: Sequence[Batch], files: Sequence[LakeFile]) -> Batch:
        """All at once: the parts are no longer read, and the compaction is. Refused when one of them is gone."""
        ...

    def lakes(self) -> list[LakeHead]: ...
    def journal_days(self) -> dict[date, bool]:
        """The days before today that the journal has, and whether in a partition of their own."""
        ...

    def drop_day(self, day: date, rows: int) -> bool:
        """Drop a partition that has exactly so many rows. False: it has others now, or is busy; it stays as it is."""
        ...

    def drop_overflow(self, day: date, edges: Sequence[Edge]) -> int: ...
    def mark_pruned(self) -> None: ...
    def retention(self) -> dict[int, date]:
        """By queue id: from which day on its history is to be kept."""
        ...

    def retire(self, lake: str, taken: Mapping[Batch, Sequence[LakeFile]], horizons: Mapping[int, date]) -> None:
        """Take files out of the manifest. They may be deleted afterwards."""
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
    """The files that hold these days (both included) and queues."""
    for batch in batches:
        if batch.state in READABLE:
            for file in batch.files:
                inside = (since is None or file.day >= since) and (until is None or file.day <= until)
                if inside and (queues is None or file.queue in queues):
                    yield file
