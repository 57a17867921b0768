"""What the data pipeline knows about the journal and its archive: windows between two snapshots, batches in a lake, runs
of jobs. Values, and the ports behind which the database does its part."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import date, datetime
from enum import StrEnum
from typing import Any, Protocol

from tarry.core.errors import InvalidInput, TarryError


class ArchiveDamaged(TarryError):
    """What was read back is not what was written, or not what the journal has."""


class OtherCluster(TarryError):
    """Positions in the journal belong to one database cluster; this one is another (or older) one."""


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """A place inside a closed window: events are ordered by transaction, then by id."""

    xid: int
    id: int


@dataclass(frozen=True, slots=True)
class Edge:
    """How far somebody has read: every event whose transaction is visible in `snapshot`.

    With a `mark` the reader is in the middle: everything visible in `base`, and of the rest that is visible in
    `snapshot` what lies at or before the mark.
    """

    snapshot: str
    base: str | None = None
    mark: Mark | None = None

    def __post_init__(self) -> None:
        if (self.base is None) != (self.mark is None):
            raise InvalidInput("an edge in the middle of a window needs both its base and its mark")

    @property
    def is_complete(self) -> bool:
        return self.mark is None

    def as_json(self) -> dict[str, Any]:
        """Primitive values only: Spark keeps it in checkpoints, PostgreSQL in the manifest."""
        if self.mark is None:
            return {"snapshot": self.snapshot}
        return {"snapshot": self.snapshot, "base": self.base, "xid": self.mark.xid, "id": self.mark.id}

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Edge:
        try:
            if said.get("base") is None:
                return cls(str(said["snapshot"]))
            return cls(str(said["snapshot"]), str(said["base"]), Mark(int(said["xid"]), int(said["id"])))
        except (KeyError, TypeError, ValueError):
            raise InvalidInput(f"this is not a position in the journal: {said!r:.200}") from None


BEGINNING = Edge("1:1:")
"""Before the first transaction there ever was."""


@dataclass(frozen=True, slots=True)
class Window:
    """The events between two edges. Closed: it has the same rows whenever it is read, whoever commits meanwhile."""

    start: Edge
    end: Edge

    def __post_init__(self) -> None:
        inside = self.start.mark is not None
        if inside and (self.start.base, self.start.snapshot) != (self.end.base or self.start.base, self.end.snapshot):
            raise InvalidInput("a window that starts in the middle of another must end in that one")
        if not inside and self.end.base not in (None, self.start.snapshot):
            raise InvalidInput("a window that ends in the middle of another must start where that one does")

    @property
    def since(self) -> str:
        """The snapshot whose events are not in the window."""
        return self.start.base or self.start.snapshot

    @property
    def until(self) -> str:
        return self.end.snapshot

    @property
    def after(self) -> Mark | None:
        return self.start.mark

    @property
    def upto(self) -> Mark | None:
        return self.end.mark


@dataclass(frozen=True, slots=True)
class Digest:
    """Rows, and the sum of their hashes modulo 2^64: equal sets of events have equal digests, in whatever order."""

    rows: int = 0
    checksum: int = 0

    def __add__(self, other: Digest) -> Digest:
        return Digest(self.rows + other.rows, (self.checksum + other.checksum) % 2**64)

    def __sub__(self, other: Digest) -> Digest:
        return Digest(self.rows - other.rows, (self.checksum - other.checksum) % 2**64)


class Operator(StrEnum):
    EQ = "="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    IN = "in"
    SAME = "is not distinct from"
    IS_NULL = "is null"
    STARTS_WITH = "starts with"


@dataclass(frozen=True, slots=True)
class Condition:
    """One term of a filter that the database shall apply; several are joined by and."""

    column: str
    operator: Operator
    values: tuple[Any, ...] = ()
    negated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What to read of one table."""

    table: str
    columns: tuple[str, ...]
    conditions: tuple[Condition, ...] = ()
    since: datetime | None = None
    """Events from this time on (`at`), dead letters by their death, messages by their creation."""
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Slice:
    """The share of one task: a query that is short, and how many rows it must give (None: as many as it finds)."""

    query: str
    rows: int | None = None


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
    digest: Digest = Digest()
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


@dataclass(frozen=True, slots=True)
class QueueNote:
    id: int
    name: str
    journal: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One instant of the database, as Arrow tables."""

    live: Any
    dead: Any
    tail: Any
    """The events that are not archived."""
    queues: tuple[QueueNote, ...]


class Windows(Protocol):
    """Reading the journal and the live tables, in short statements."""

    def system_id(self) -> str: ...
    def edge(self) -> Edge:
        """Everything committed until now, and on disk: a crash cannot take back what lies before this edge."""
        ...

    def glance(self) -> Edge:
        """Everything committed until now, perhaps not on disk: to look, not to remember."""
        ...

    def check(self, edge: Edge, system_id: str) -> None:
        """Refuse an edge that this database cannot continue from."""
        ...

    def has_rows(self, window: Window) -> bool: ...
    def cut(self, window: Window, most_rows: int) -> Window:
        """The first part of the window with at most so many rows, or the window itself if it has no more."""
        ...

    def can_apply(self, table: str, condition: Condition) -> bool:
        """Whether the database and Spark mean the same by a condition."""
        ...

    def slices(self, scan: Scan, window: Window | None, *, partitions: int | None = None) -> list[Slice]: ...
    def batches(self, piece: Slice) -> Iterator[Any]:
        """Arrow record batches of one slice, all of it fetched before the first is handed over."""
        ...

    def digest(self, window: Window) -> dict[date, Digest]:
        """What the journal has of a window, by day."""
        ...

    def day_digest(self, edge: Edge, day: date) -> tuple[Digest, int]:
        """What the journal has of a day at or before the edge, and how many rows after it."""
        ...

    def picture(self, edge: Edge) -> Picture:
        """Live messages, dead letters and what the journal has after the edge, all at one instant."""
        ...


class Manifest(Protocol):
    """What is in a lake, and who did it. Every method is one short transaction."""

    def run(self, job: str) -> AbstractContextManager[Run]:
        """Write down that a job runs, and how it ended. Refused while the same job runs elsewhere."""
        ...

    def last_run(self, job: str) -> PastRun | None:
        """The last run that was completed."""
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
