"""`MaintenanceRole` in memory: leadership among the parts of one program, and the sweep."""

from collections.abc import Sequence
from datetime import timedelta

from tarry.core.journal.events import EventKind
from tarry.core.maintenance.database import NoDatabase
from tarry.core.maintenance.leadership import Leadership
from tarry.core.maintenance.sweeping import SweepCursor, Swept
from tarry.storage.memory.state import MemoryOperation, MemoryRole, locked


class MemoryMaintenance(MemoryRole, NoDatabase):
    @locked
    def acquire(self, name: str, holder: str, lead_for: timedelta) -> Leadership | None:
        leader, last = self._state.leader(name), self._state.leaders.get(name)
        if leader is not None and leader.holder != holder:
            return None
        fence = 1 if last is None else last.fence + 1
        return self._keep(Leadership(name, holder, fence, self._now + lead_for))

    @locked
    def renew(self, held: Leadership, lead_for: timedelta) -> Leadership | None:
        return self._keep(held._replace(lease_until=self._now + lead_for)) if self._state.leads(held) else None

    @locked
    def resign(self, held: Leadership) -> bool:
        leads = self._state.leads(held)
        if leads:
            self._keep(held._replace(lease_until=self._now))
        return leads

    @locked
    def leader(self, name: str) -> Leadership | None:
        return self._state.leader(name)

    @locked
    def leaders(self) -> list[Leadership]:
        return sorted(self._state.leaders.values())

    def _keep(self, leadership: Leadership) -> Leadership:
        self._state.leaders[leadership.name] = leadership
        return leadership

    def needing_sweep(self, queues: Sequence[str]) -> MemoryOperation[list[str]]:
        """All queues: checking a queue would cost as much as its sweep."""
        return self._result(list(queues))

    @locked
    def sweep(
        self, queue: str, *, after: SweepCursor | None = None, limit: int = 1000, leadership: Leadership | None = None
    ) -> Swept:
        now = self._now
        swept = self._state.queues.get(queue)
        if swept is None or swept.paused_at is not None or not self._state.leads(leadership):
            return Swept()
        due = [row for row in swept.rows.values() if row.due_at <= now and row.is_free(now)]
        exhausted = {row.key for row in due if row.is_exhausted(swept.settings, row.attempts_of_poll)}
        stuck = [row for row in due if row.has_unrecorded_lease or row.key in exhausted]
        stuck.sort(key=lambda row: (-row.priority, row.due_at, row.version))
        expired = buried = 0
        for row in stuck[:limit]:
            if row.has_unrecorded_lease:
                swept.note(EventKind.EXPIRED, row, leased=True)
                row.expired_at = now
                expired += 1
            if row.key in exhausted:
                swept.bury(row, "exhausted", None)
                buried += 1
        # Recorded and buried messages are not found again, so the next step may start from the head.
        return Swept(expired, buried, len(due), () if len(stuck) > limit else None)

    def remove_leftovers(self) -> MemoryOperation[int]:
        """No-op: a queue in memory is deleted immediately."""
        return self._result(0)
