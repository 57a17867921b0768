"""State of the data pipeline: batches in a lake, day accounts, runs of jobs."""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from tarry.core.errors import TarryError
from tarry.core.journal.snapshots import NO_ROWS, Digest, SnapshotBound, Window


class ArchiveDamaged(TarryError):
    """Files that were read back differ from the rows that were written, or from the journal."""


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


GRACE = timedelta(hours=1)
"""How long the files of a replaced batch stay, for readers that read the manifest before the replacement."""
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


class QueueNames(NamedTuple):
    """A queue and its names. Archived events have its permanent id, and its name at the time of archiving."""

    queue_id: int
    name: str
    former: Sequence[str] = ()

    @property
    def all(self) -> set[str]:
        return {self.name, *self.former}


class ArchivedFile(NamedTuple):
    """A readable file, and the lake that it is in."""

    lake: str
    file: LakeFile


def directory_of(batch: int) -> str:
    return f"events/batch={batch:08d}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    number: int
    lake: str
    kind: str
    """`archive` or `compaction`."""
    position: int
    """The position in the chain of windows: a compaction takes the position of the last batch that it replaces."""
    start: SnapshotBound
    end: SnapshotBound
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
        return directory_of(self.number)


@dataclass(frozen=True, slots=True)
class LakeHead:
    """The position that a lake has reached."""

    lake: str
    edge: SnapshotBound
    system_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedDay:
    """The account of one day in one lake. Exactly the archived rows that are not pruned must be in the journal."""

    day: date
    archived: Digest
    pruned: Digest
    retired: Digest
    """Removed from the lake by retention."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgottenKey:
    """Counts of a key's rows deleted from PostgreSQL; a live message and dead letters stay."""

    live: int
    dead: int
    events: int
    anomalies: int
    left_over: int
    """Events that stay because they are not archived yet."""


@dataclass(slots=True)
class Run:
    """One run of one job, open until its `with` block ends."""

    id: int
    job: str
    started_at: datetime
    verify_held: Callable[[], None]
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
        """Whether it failed with an error, or its process died."""
        return self.state in ("failed", "lost")


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
    queue: QueueNames | None = None,
) -> Generator[LakeFile]:
    """The files of these days (both included); of a queue, those that may have events of it."""
    for batch in batches:
        if batch.state in READABLE:
            for file in batch.files:
                inside = (since is None or file.day >= since) and (until is None or file.day <= until)
                # A file of a deleted queue has events of its successor with the same name as well.
                if inside and (queue is None or file.queue_id == queue.queue_id or file.queue in queue.all):
                    yield file
