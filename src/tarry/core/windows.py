"""Windows of the journal: what was committed between two snapshots, what to read of it, and the port that reads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from typing import Any, Protocol

from tarry.core.errors import InvalidInput


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
