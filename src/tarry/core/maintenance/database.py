"""Database status for operators: size, dead rows, open transactions, journal partitions."""

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import NamedTuple, TypeVar

from tarry.core.maintenance.leadership import Leadership
from tarry.core.maintenance.sweeping import Partitions, PrunedDay, VacuumProblem
from tarry.core.operation import Operation

R = TypeVar("R")


class TableStatus(NamedTuple):
    """A table with its indexes. Row counts are the database's estimates."""

    name: str
    bytes: int
    index_bytes: int
    live: int
    dead: int
    changed: int
    """Rows changed since the last analyze."""
    autovacuum: bool
    vacuumed_at: datetime | None
    analyzed_at: datetime | None

    @property
    def dead_share(self) -> float:
        return self.dead / (self.live + self.dead) if self.dead else 0.0


class Partition(NamedTuple):
    """A journal day. `day` is None for the overflow partition, which has the events of days without a partition."""

    name: str
    day: date | None
    bytes: int
    rows: int


class OpenTransaction(NamedTuple):
    pid: int
    """0: a prepared transaction, which has no session."""
    session: str
    user: str
    state: str
    age_for: timedelta
    prevents_vacuum: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseStatus:
    name: str
    version: str
    bytes: int
    started_at: datetime
    connections: int
    most_connections: int
    notify_share: float
    """Fill level of the notification queue; at 1, commits that notify fail."""
    frozen_age: int
    """Transactions since the oldest unfrozen row; at two billion the server stops."""
    tables: list[TableStatus]
    """The largest first."""
    partitions: list[Partition]
    """The newest first."""
    transactions: list[OpenTransaction]
    """The oldest first."""


class NoDatabase:
    """The database methods of `MaintenanceRole` for a store without a database, whose journal is bounded."""

    def _result(self, value: R) -> Operation[R]:
        """A store operation with this result."""
        raise NotImplementedError

    def make_partitions(self, days: int, *, leadership: Leadership | None = None) -> Operation[Partitions]:
        return self._result(Partitions(0, 0, 0, overflowing=False))

    def prune_journal(self, *, archived: bool = False, limit: int = 10) -> Operation[list[PrunedDay]]:
        return self._result([])

    def vacuum_problems(self) -> Operation[list[VacuumProblem]]:
        return self._result([])

    def database(self) -> Operation[DatabaseStatus | None]:
        return self._result(None)
