"""`MaintenanceRole` on PostgreSQL."""

from __future__ import annotations

from datetime import timedelta

from tarry.core.maintenance.database import DatabaseStatus
from tarry.core.maintenance.leadership import Leadership
from tarry.core.maintenance.sweeping import Partitions, SweepCursor, Swept, VacuumProblem
from tarry.storage.postgres.maintenance import statements
from tarry.storage.postgres.maintenance.statements import leadership
from tarry.storage.postgres.operation import PostgresOperation, PostgresRole
from tarry.storage.postgres.queues.statements import remove_leftovers


class PostgresMaintenance(PostgresRole):
    def acquire(self, name: str, holder: str, lead_for: timedelta) -> PostgresOperation[Leadership | None]:
        return self._sql("maintenance/acquire_leadership", leadership, name=name, holder=holder, lead_for=lead_for)

    def renew(self, held: Leadership, lead_for: timedelta) -> PostgresOperation[Leadership | None]:
        return self._sql(
            "maintenance/renew_leadership", leadership, name=held.name, fence=held.fence, lead_for=lead_for
        )

    def resign(self, held: Leadership) -> PostgresOperation[bool]:
        return self._sql("maintenance/resign_leadership", bool, name=held.name, fence=held.fence)

    def leader(self, name: str) -> PostgresOperation[Leadership | None]:
        return self._sql("maintenance/leader", leadership, name=name)

    def leaders(self) -> PostgresOperation[list[Leadership]]:
        return self._sql("maintenance/leaders", lambda rows: [Leadership(*row) for row in rows])

    def sweep(
        self, queue: str, *, after: SweepCursor | None = None, limit: int = 1000, lead: Leadership | None = None
    ) -> PostgresOperation[Swept]:
        return self._statement(lambda now: statements.sweep(queue, after, limit, lead, now))

    def remove_leftovers(self) -> PostgresOperation[int]:
        return self._statement(lambda now: remove_leftovers(None, now))

    def make_partitions(self, days: int, *, lead: Leadership | None = None) -> PostgresOperation[Partitions]:
        # Tried once: while it waits for the journal, every writer waits behind it.
        return self._steps(lambda now: statements.make_partitions(days, lead, now), atomic=True, wait_for_locks=False)

    def vacuum_problems(self) -> PostgresOperation[list[VacuumProblem]]:
        return self._statement(lambda now: statements.vacuum_problems())

    def database(self) -> PostgresOperation[DatabaseStatus | None]:
        return self._steps(lambda now: statements.database())
