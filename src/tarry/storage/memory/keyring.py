"""API keys and the audit log of an in-memory store."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from tarry.core.audit import Audited
from tarry.core.errors import Refused
from tarry.core.keys import ApiKey

_AUDITS_KEPT = 10_000


class Keyring:
    """Not thread-safe: the store's lock is held around every call."""

    def __init__(self) -> None:
        self._keys: dict[str, ApiKey] = {}
        self._audits: deque[Audited] = deque(maxlen=_AUDITS_KEPT)
        self._last = 0

    def add(self, key: ApiKey, expires_for: timedelta | None, now: datetime) -> ApiKey:
        if key.id in self._keys:
            raise Refused("there is a key with this id already", hint="try again: ids are random")
        ends = [end for end in (None if expires_for is None else now + expires_for, key.expires_at) if end is not None]
        self._keys[key.id] = replace(key, created_at=now, expires_at=min(ends, default=None))
        return self._seen(self._keys[key.id], now)

    def find(self, ids: Sequence[str], now: datetime) -> list[ApiKey]:
        wanted = set(ids)
        return [key for key in self.every(now) if key.id in wanted]

    def every(self, now: datetime) -> list[ApiKey]:
        return [self._seen(key, now) for key in sorted(self._keys.values(), key=lambda key: (key.created_at, key.id))]

    def revoke(self, id: str, now: datetime) -> ApiKey | None:
        key = self._keys.get(id)
        if key is None:
            return None
        self._keys[id] = replace(key, revoked_at=key.revoked_at or now)
        return self._seen(self._keys[id], now)

    def audit(
        self,
        actor: str,
        action: str,
        queue: str | None,
        detail: Mapping[str, Any] | None,
        request_id: str | None,
        now: datetime,
    ) -> int:
        self._last += 1
        self._audits.append(
            Audited(
                id=self._last, at=now, actor=actor, action=action, queue=queue, detail=detail, request_id=request_id
            )
        )
        return self._last

    def audited(self, id: int, status: int, detail: Mapping[str, Any] | None) -> None:
        for place, row in enumerate(self._audits):
            if row.id == id:
                merged = row.detail if detail is None else {**(row.detail or {}), **detail}
                self._audits[place] = replace(row, status=status, detail=merged)

    def audits(self, limit: int) -> list[Audited]:
        return list(reversed(self._audits))[: max(limit, 0)]

    @staticmethod
    def _seen(key: ApiKey, now: datetime) -> ApiKey:
        return replace(key, active=key.revoked_at is None and (key.expires_at is None or key.expires_at > now))
