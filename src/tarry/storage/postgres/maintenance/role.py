"""`MaintenanceRole` on PostgreSQL: leadership, and the work of the sweeper."""

from datetime import timedelta

from tarry.core.limits import PRIORITIES
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
from tarry.storage.postgres.arrays import MINUS_INFINITY, BigintArray, SmallintArray, TimestampArray
from tarry.storage.postgres.dead_letters.statements import fenced
from tarry.storage.postgres.journal.pruning import prune
from tarry.storage.postgres.messages.statements import storable
from tarry.storage.postgres.operation import PostgresOperation, PostgresRole, operation
from tarry.storage.postgres.queues.statements import remove_leftovers
from tarry.storage.postgres.statement import Op, Row, bind, each, first, made, only_row, value

held_leadership = first(made(Leadership))


class PostgresMaintenance(PostgresRole):
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

    def sweep(
        self, queue: str, *, after: SweepCursor | None = None, limit: int = 1000, leadership: Leadership | None = None
    ) -> PostgresOperation[Swept]:
        cursors = after or (None,) * len(PRIORITIES)
        limit = max(1, storable(limit))

        def decode(rows: list[Row]) -> Swept:
            if not rows:
                return Swept()
            reached = list(cursors)
            for row in rows:
                reached[row.priority] = (row.due_at, row.version)
            # A priority that returned `limit` rows may have more; the cursors of the others are kept until all are done:
            # messages that are offered meanwhile are for the next round.
            more = any(row.walked >= limit for row in rows)
            walked = sum(row.walked for row in rows)
            return Swept(rows[0].expired, rows[0].buried, walked, tuple(reached) if more else None)

        return self._sql(
            "maintenance/sweep",
            decode,
            queue=queue,
            limit=limit,
            priorities=SmallintArray(PRIORITIES),
            after_due_at=TimestampArray([p and p[0] for p in cursors], missing=MINUS_INFINITY),
            after_version=BigintArray([p[1] if p else 0 for p in cursors]),
            **fenced(leadership),
        )

    def remove_leftovers(self) -> PostgresOperation[int]:
        return self._statement(lambda now: remove_leftovers(None, now))

    # Tried once: while it waits for the journal, every writer waits behind it.
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
    """The decoder of maintenance/vacuum_health."""
    dead, live, age = rows[0].dead, rows[0].live, rows[0].age
    problems: list[VacuumProblem] = []
    if dead > MOST_DEAD_ROWS and dead > live:
        state = f"{dead:,} dead rows beside {live:,} live ones in tarry.message"
        hint = "check that autovacuum runs, and look for a transaction that was left open"
        problems.append(VacuumProblem("dead rows", state, hint))
    if age is not None and age > LONGEST_SNAPSHOT:
        state = f"{rows[0].session} has been open for {age - timedelta(microseconds=age.microseconds)}"
        hint = "end it: until then nothing that died since can be cleaned up, and every poll gets slower"
        problems.append(VacuumProblem("oldest snapshot", state, hint))
    return problems
