"""`MaintenanceRole` on Redis: leadership in the registry, the sweep in the slot of each queue."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from tarry.core.errors import UnknownQueue
from tarry.core.maintenance.database import NoDatabase
from tarry.core.maintenance.leadership import Leadership
from tarry.core.maintenance.sweeping import SweepCursor, Swept
from tarry.storage.redis.operation import Op, RedisRole, duration, instant, micros, operation

_MOST_SWEPT = 1_000
"""Messages of each priority that one script sweeps."""
_MOST_REMOVED = 50_000


class RedisMaintenance(RedisRole, NoDatabase):
    @operation
    def acquire(self, name: str, holder: str, lead_for: timedelta) -> Op[Leadership | None]:
        params = {"name": name, "holder": holder, "lead_for": duration(lead_for)}
        return _leadership((yield from self._registry("maintenance/acquire", **params)))

    @operation
    def renew(self, held: Leadership, lead_for: timedelta) -> Op[Leadership | None]:
        return (yield from self._renew(held, lead_for))

    @operation
    def resign(self, held: Leadership) -> Op[bool]:
        return (yield from self._renew(held, timedelta(0))) is not None

    def _renew(self, held: Leadership, lead_for: timedelta) -> Op[Leadership | None]:
        params = {"name": held.name, "holder": held.holder, "fence": held.fence, "lead_for": duration(lead_for)}
        return _leadership((yield from self._registry("maintenance/renew", **params)))

    @operation
    def leader(self, name: str) -> Op[Leadership | None]:
        leaders = yield from self._registry("maintenance/leaders")
        return next((_leadership(row) for row in leaders if row[4] and row[0].decode() == name), None)

    @operation
    def leaders(self) -> Op[list[Leadership]]:
        leaders = [_leadership(row) for row in (yield from self._registry("maintenance/leaders"))]
        return sorted(leader for leader in leaders if leader is not None)

    @operation
    def needing_sweep(self, queues: Sequence[str]) -> Op[list[str]]:
        """All of them: sweeping a quiet queue costs one script, as a check would."""
        yield from ()
        return list(queues)

    @operation
    def sweep(
        self, queue: str, *, after: SweepCursor | None = None, limit: int = 1000, leadership: Leadership | None = None
    ) -> Op[Swept]:
        if not (yield from self._leads(leadership)):
            return Swept()
        positions = after or ((None,) * 10 if after is None else ())
        starts = [
            [priority] if position is None else [priority, micros(position[0]), position[1]]
            for priority, position in zip(range(9, -1, -1), positions, strict=True)
            if after is None or position is not None
        ]
        try:
            expired, buried, walked, rows = yield from self._in_queue(
                queue, "maintenance/sweep", starts=starts, limit=max(1, min(limit, _MOST_SWEPT))
            )
        except UnknownQueue:
            return Swept()
        ends = {priority: (instant(due), version) for priority, due, version in zip(*[iter(rows)] * 3, strict=True)}
        cursor = tuple(ends.get(priority) for priority in range(9, -1, -1)) if ends else None
        return Swept(expired, buried, walked, cursor)

    @operation
    def remove_leftovers(self) -> Op[int]:
        """Complete deletions of queues whose processes have ended."""
        removed = 0
        for id in (yield from self._registry("maintenance/leftovers")):
            if removed < _MOST_REMOVED:
                removed += yield from self._remove_deleted(id.decode(), _MOST_REMOVED - removed)
        return removed


def _leadership(row: Any) -> Leadership | None:
    return None if row is None else Leadership(row[0].decode(), row[1].decode(), row[2], instant(row[3]))
