"""Windows of the journal: the events committed between two snapshots, and queries on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tarry.core.errors import InvalidInput


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """A position inside a closed window: events are ordered by transaction, then by id."""

    xid: int
    id: int


@dataclass(frozen=True, slots=True)
class Point:
    """Evidence for a bound: the position of the write-ahead log when the bound was issued.

    A standby that takes over has everything before `lsn` only if it had received that much. `branch` is the id of a row
    written with it, which distinguishes the history of one server from that of a promoted one."""

    branch: int
    lsn: int


@dataclass(frozen=True, slots=True)
class SnapshotBound:
    """A read position: every event whose transaction is visible in `snapshot`.

    With a `mark` the position is inside a window: everything visible in `base`, and of the rest visible in `snapshot`
    the events at or before the mark."""

    snapshot: str
    base: str | None = None
    mark: Mark | None = None
    point: Point | None = field(default=None, compare=False)
    """None: the bound must not be stored, or was issued by a version that kept no evidence."""

    def __post_init__(self) -> None:
        if (self.base is None) != (self.mark is None):
            raise InvalidInput("a bound inside a window needs both its base and its mark")

    @property
    def is_complete(self) -> bool:
        return self.mark is None

    @property
    def closed(self) -> SnapshotBound:
        """The end of the window in which this bound lies."""
        return SnapshotBound(self.snapshot, point=self.point)

    def as_json(self) -> dict[str, Any]:
        """Primitive values only: Spark stores it in checkpoints, PostgreSQL in the manifest."""
        fields: dict[str, Any] = {"snapshot": self.snapshot}
        if self.mark is not None:
            fields |= {"base": self.base, "xid": self.mark.xid, "id": self.mark.id}
        if self.point is not None:
            fields |= {"branch": self.point.branch, "lsn": self.point.lsn}
        return fields

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> SnapshotBound:
        try:
            point = None if fields.get("branch") is None else Point(int(fields["branch"]), int(fields["lsn"]))
            if fields.get("base") is None:
                return cls(str(fields["snapshot"]), point=point)
            mark = Mark(int(fields["xid"]), int(fields["id"]))
            return cls(str(fields["snapshot"]), str(fields["base"]), mark, point)
        except (KeyError, TypeError, ValueError):
            raise InvalidInput(f"this is not a position in the journal: {fields!r:.200}") from None


BEGINNING = SnapshotBound("1:1:")
"""Before the first transaction."""


@dataclass(frozen=True, slots=True)
class Window:
    """The events between two bounds. Closed: every read returns the same rows, regardless of later commits."""

    start: SnapshotBound
    end: SnapshotBound

    def __post_init__(self) -> None:
        inside = self.start.mark is not None
        if inside and (self.start.base, self.start.snapshot) != (self.end.base or self.start.base, self.end.snapshot):
            raise InvalidInput("a window that starts inside another must end in that one")
        if not inside and self.end.base not in (None, self.start.snapshot):
            raise InvalidInput("a window that ends inside another must start where that one does")

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


@dataclass(frozen=True, slots=True)
class ColumnCondition:
    """One term of a filter for the database; several are combined by AND."""

    column: str
    operator: str
    """Named like Spark's filter: `EqualTo`, `In`."""
    values: tuple[Any, ...] = ()
    negated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What to read from one table."""

    table: str
    columns: tuple[str, ...]
    conditions: tuple[ColumnCondition, ...] = ()
    since: datetime | None = None
    """Lower bound: events by `at`, dead letters by their death, messages by their creation."""
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Slice:
    """The share of one task: a short query and its expected row count (None: unknown)."""

    query: str
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Share:
    """A condition on the columns of a query, and its expected row count (None: unknown)."""

    where: str
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class SharedQuery:
    """A query, divided into shares for the tasks that read it."""

    query: str
    columns: tuple[str, ...]
    """Quoted. The query may have more columns, for the conditions."""
    shares: tuple[Share, ...]

    @property
    def slices(self) -> list[Slice]:
        start = f"select {', '.join(self.columns)} from ({self.query}) s where "  # noqa: S608 - of our own texts
        return [Slice(start + share.where, share.rows) for share in self.shares]


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """How a driver other than libpq reaches the database."""

    host: str
    port: int
    database: str
    user: str
    password: str
    sslmode: str


@dataclass(frozen=True, slots=True)
class QueueNote:
    id: int
    name: str
    journal: str


@dataclass(frozen=True, slots=True)
class TableRange:
    """A key range of a table, and the query that reads it in one snapshot, which is its first column. An empty range returns
    a row without a key.
    """

    query: str
    low: Any = None
    """The first key; None: no bound."""
    high: Any = None
    """The first key after the range."""
