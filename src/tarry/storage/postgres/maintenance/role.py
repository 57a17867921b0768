"""`MaintenanceRole` on PostgreSQL: leadership and the sweeper's statements."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from operator import itemgetter

from tarry.core.clock import Clock
from tarry.core.maintenance.database import DatabaseStatus, OpenTransaction, Partition, TableStatus
from tarry.core.maintenance.leadership import Leadership
from tarry.core.maintenance.sweeping import (
    LONGEST_SNAPSHOT,
    MOST_DEAD_ROWS,
    Partitions,
    PrunedDay,
    SweepCursor,
    Swept,
    VacuumProblem,
)
from tarry.core.settings import StoreSettings
from tarry.storage.postgres.arrays import TextArray
from tarry.storage.postgres.journal.pruning import prune
from tarry.storage.postgres.messages.live_heads import LiveHeads, ScanKey
from tarry.storage.postgres.messages.statements import ScanPosition, starting_at, storable
from tarry.storage.postgres.operation import PostgresOperation, PostgresRole, fenced, operation
from tarry.storage.postgres.queues.statements import remove_leftovers
from tarry.storage.postgres.statement import Op, Row, Statement, bind, each, first, made, only_row, value

_QUEUES = 500
"""Queues per check statement."""
_SLOW_S = 0.1
held_leadership = first(made(Leadership))


class PostgresMaintenance(PostgresRole):
    def __init__(self, clock: Clock, settings: StoreSettings, live_heads: LiveHeads) -> None:
        super().__init__(clock, settings)
        self._live_heads = live_heads

    def acquire(self, name: str, holder: str, lead_for: timedelta) -> PostgresOperation[Leadership | None]:
        return self._sql("maintenance/acquire_leadership", held_leadership, name=name, holder=holder, lead_for=lead_for)

    def renew(self, held: Leadership, lead_for: timedelta) -> PostgresOperation[Leadership | None]:
        about = {"name": held.name, "fence": held.fence, "lead_for": lead_for}
        return self._sql("maintenance/renew_leadership", held_leadership, **about)

    def resign(self, held: Leadership) -> PostgresOperation[bool]:
        return self._sql("maintenance/resign_leadership", bool, name=held.name, fence=held.fence)

    def leader(self, name: str) -> PostgresOperation[Leadership | None]:
        return self._sql("maintenance/leader", held_leadership, name=name)

    def leaders(self) -> PostgresOperation[list[Leadership]]:
        return self._sql("maintenance/leaders", each(made(Leadership)))

    def needing_sweep(self, queues: Sequence[str]) -> PostgresOperation[list[str]]:
        def steps(own: bool) -> Op[list[str]]:  # noqa: FBT001
            needing = [name for name in queues if self._live_heads.has(ScanKey("sweep", name))]
            others = sorted(set(queues) - set(needing))
            for start in range(0, len(others), _QUEUES):
                chunk, started_s = others[start : start + _QUEUES], self._live_heads.timer()
                about = {"queues": TextArray(chunk), "now": self._now}
                named = yield from bind("maintenance/needing_sweep", each(itemgetter(0)), **about).run()
                # If it was slow, perhaps because of dead rows, the sweep of each queue finds its first live messages.
                needing += chunk if self._live_heads.timer() - started_s > _SLOW_S else named
            return needing

        return PostgresOperation(steps)

    def sweep(
        self, queue: str, *, after: SweepCursor | None = None, limit: int = 1000, leadership: Leadership | None = None
    ) -> PostgresOperation[Swept]:
        limit = max(1, storable(limit))

        def statement(positions: Sequence[ScanPosition]) -> Statement[Swept]:
            def decode(rows: list[Row]) -> Swept:
                reached: list[tuple[datetime, int] | None] = [
                    None if position.due_at is None else (position.due_at, position.version) for position in positions
                ]
                walked_rows = [row for row in rows if row.walked]
                if not walked_rows:
                    return Swept()
                for row in walked_rows:
                    reached[row.priority] = (row.due_at, row.version)
                # A priority that returned `limit` rows may have more. The cursors of the others are kept until all are
                # done: new messages are left to the next round.
                more = any(row.walked >= limit for row in walked_rows)
                walked = sum(row.walked for row in walked_rows)
                return Swept(rows[0].expired, rows[0].buried, walked, tuple(reached) if more else None)

            about = {"queue": queue, "limit": limit, "now": self._now}
            return bind("maintenance/sweep", decode, **about, **starting_at(positions), **fenced(leadership))

        if after is None:
            return PostgresOperation(lambda own: self._live_heads.scan(ScanKey("sweep", queue), statement, own=own))
        return PostgresOperation(
            lambda own: statement([ScanPosition() if p is None else ScanPosition(*p) for p in after]).run()
        )

    def remove_leftovers(self) -> PostgresOperation[int]:
        return self._statement(lambda now: remove_leftovers(None, now))

    # Not retried: while it waits for the journal, every writer waits behind it.
    @operation(atomic=True, wait_for_locks=False)
    def make_partitions(self, days: int, *, leadership: Leadership | None = None) -> Op[Partitions]:
        params = {"days": days, "now": self._now, **fenced(leadership)}
        (ahead,) = yield from bind("journal/partitions_ahead", each(made(Partitions)), **params).run()
        return ahead._replace(more=(yield from bind("journal/partitions_step", value, **params).run()))

    @operation(wait_for_locks=False)
    def prune_journal(self, *, archived: bool = False, limit: int = 10) -> Op[list[PrunedDay]]:
        return prune(archived=archived, limit=limit)

    def vacuum_problems(self) -> PostgresOperation[list[VacuumProblem]]:
        return self._sql("maintenance/vacuum_health", vacuum_problems)

    @operation()
    def database(self) -> Op[DatabaseStatus | None]:
        server = yield from bind("maintenance/server", only_row).run()
        tables = yield from bind("maintenance/tables", each(made(TableStatus))).run()
        partitions = yield from bind("maintenance/journal_sizes", each(made(Partition))).run()
        transactions = yield from bind("maintenance/transactions", each(made(OpenTransaction))).run()
        return DatabaseStatus(**server._asdict(), tables=tables, partitions=partitions, transactions=transactions)


def vacuum_problems(rows: list[Row]) -> list[VacuumProblem]:
    """Decoder of maintenance/vacuum_health."""
    dead, live, age = rows[0].dead, rows[0].live, rows[0].age
    problems: list[VacuumProblem] = []
    if dead > MOST_DEAD_ROWS and dead > live:
        state = f"{dead:,} dead and {live:,} live rows in the table message"
        hint = "check that autovacuum runs, and look for a transaction that was left open"
        problems.append(VacuumProblem("dead rows", state, hint))
    if age is not None and age > LONGEST_SNAPSHOT:
        state = f"{rows[0].session} has been open for {age - timedelta(microseconds=age.microseconds)}"
        hint = "end it: until then vacuum cannot remove rows that died since, and every poll gets slower"
        problems.append(VacuumProblem("oldest snapshot", state, hint))
    return problems
