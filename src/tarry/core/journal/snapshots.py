"""Windows of the journal: the events committed between two snapshots, queries on them, and the port that reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from enum import StrEnum
from typing import Any, Protocol

from tarry.core.errors import InvalidInput


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """A position inside a closed window: events are ordered by transaction, then by id."""

    xid: int
    id: int


@dataclass(frozen=True, slots=True)
class Point:
    """Evidence for an edge: how far the write-ahead log was when the edge was given out.

    A standby that takes over has everything before `lsn` only if it had received that much. `branch` names a row that was
    written with it, so it tells the history of one server from that of another that was promoted.
    """

    branch: int
    lsn: int


@dataclass(frozen=True, slots=True)
class Edge:
    """A read position: every event whose transaction is visible in `snapshot`.

    With a `mark` the position is inside a window: everything visible in `base`, and of the rest visible in `snapshot`
    the events at or before the mark.
    """

    snapshot: str
    base: str | None = None
    mark: Mark | None = None
    point: Point | None = field(default=None, compare=False)
    """None: it is not to be remembered, or was given out by a version that kept no evidence."""

    def __post_init__(self) -> None:
        if (self.base is None) != (self.mark is None):
            raise InvalidInput("an edge in the middle of a window needs both its base and its mark")

    @property
    def is_complete(self) -> bool:
        return self.mark is None

    @property
    def closed(self) -> Edge:
        """The end of the window that this edge lies in."""
        return Edge(self.snapshot, point=self.point)

    def as_json(self) -> dict[str, Any]:
        """Primitive values only: Spark stores it in checkpoints, PostgreSQL in the manifest."""
        written: dict[str, Any] = {"snapshot": self.snapshot}
        if self.mark is not None:
            written |= {"base": self.base, "xid": self.mark.xid, "id": self.mark.id}
        if self.point is not None:
            written |= {"branch": self.point.branch, "lsn": self.point.lsn}
        return written

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Edge:
        try:
            point = None if said.get("branch") is None else Point(int(said["branch"]), int(said["lsn"]))
            if said.get("base") is None:
                return cls(str(said["snapshot"]), point=point)
            mark = Mark(int(said["xid"]), int(said["id"]))
            return cls(str(said["snapshot"]), str(said["base"]), mark, point)
        except (KeyError, TypeError, ValueError):
            raise InvalidInput(f"this is not a position in the journal: {said!r:.200}") from None


BEGINNING = Edge("1:1:")
"""Before the first transaction."""


@dataclass(frozen=True, slots=True)
class Window:
    """The events between two edges. Closed: it has the same rows at every read, regardless of later commits."""

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
        """The snapshot whose events are excluded."""
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
    """Row count, and the sum of the row hashes modulo 2^64: equal sets of events have equal digests, in any order."""

    rows: int = 0
    checksum: int = 0

    def __add__(self, other: Digest) -> Digest:
        return Digest(self.rows + other.rows, (self.checksum + other.checksum) % 2**64)

    def __sub__(self, other: Digest) -> Digest:
        return Digest(self.rows - other.rows, (self.checksum - other.checksum) % 2**64)


NO_ROWS = Digest()


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
    """One term of a filter for the database; several are combined by AND."""

    column: str
    operator: Operator
    values: tuple[Any, ...] = ()
    negated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What to read from one table."""

    table: str
    columns: tuple[str, ...]
    conditions: tuple[Condition, ...] = ()
    since: datetime | None = None
    """Lower bound: events by `at`, dead letters by their death, messages by their creation."""
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Slice:
    """The share of one task: a short query, and its expected number of rows (None: unknown)."""

    query: str
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class QueueNote:
    id: int
    name: str
    journal: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One snapshot of the database, as Arrow tables."""

    live: Any
    dead: Any
    tail: Any
    """The events that are not archived."""
    queues: tuple[QueueNote, ...]


class Windows(Protocol):
    """Reading the journal and the live tables, in short statements."""

    def system_id(self) -> str: ...
    def edge(self) -> Edge:
        """The position of everything committed and flushed: a crash cannot undo what lies before this edge."""
        ...

    def glance(self) -> Edge:
        """The position of everything committed, possibly not flushed: must not be stored."""
        ...

    def check(self, edge: Edge, system_id: str) -> None:
        """Raise if this database cannot continue from the edge."""
        ...

    def has_rows(self, window: Window) -> bool: ...
    def cut(self, window: Window, most_rows: int) -> Window:
        """The first part of the window with at most this many rows, or the whole window if it has no more."""
        ...

    def can_apply(self, table: str, condition: Condition) -> bool:
        """Whether the database and Spark evaluate the condition identically."""
        ...

    def slices(self, scan: Scan, window: Window | None, *, partitions: int | None = None) -> list[Slice]: ...
    def batches(self, piece: Slice) -> Iterator[Any]:
        """Arrow record batches of one slice, fetched as a whole before the first is yielded."""
        ...

    def digest(self, window: Window) -> dict[date, Digest]:
        """Digest of the events in a window, by day."""
        ...

    def day_digest(self, edge: Edge, day: date) -> tuple[Digest, int]:
        """Digest of a day's events at or before the edge, and the number of rows after it."""
        ...

    def picture(self, edge: Edge) -> Picture:
        """Live messages, dead letters and the journal after the edge, all of one instant."""
        ...
