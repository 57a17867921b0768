"""Leadership in memory: for tests, and for parts of one program that must not do the same work concurrently."""

from __future__ import annotations

from datetime import datetime, timedelta

from tarry.core.leading import Leadership


class Leaders:
    """Not thread-safe: the store's lock is held around every call."""

    def __init__(self) -> None:
        self._last: dict[str, Leadership] = {}

    def lead(self, name: str, holder: str, lead_for: timedelta, now: datetime) -> Leadership | None:
        last = self._last.get(name)
        if last is not None and last.lease_until > now and last.holder != holder:
            return None
        fence = 1 if last is None else last.fence + 1
        return self._keep(Leadership(name, holder, fence, now + lead_for))

    def lead_on(self, held: Leadership, lead_for: timedelta, now: datetime) -> Leadership | None:
        return self._keep(held._replace(lease_until=now + lead_for)) if self.holds(held, now) else None

    def lead_end(self, held: Leadership, now: datetime) -> bool:
        if not self.holds(held, now):
            return False
        self._keep(held._replace(lease_until=now))
        return True

    def leader(self, name: str, now: datetime) -> Leadership | None:
        last = self._last.get(name)
        return last if last is not None and last.lease_until > now else None

    def holds(self, held: Leadership, now: datetime) -> bool:
        leader = self.leader(held.name, now)
        return leader is not None and leader.fence == held.fence

    def _keep(self, leadership: Leadership) -> Leadership:
        self._last[leadership.name] = leadership
        return leadership
