"""`SecurityRole` in memory: API keys, the audit log, and stored responses of idempotency keys."""

from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count, islice
from typing import Any

from tarry.core.errors import InvalidState, LockTimeout
from tarry.core.maintenance.leadership import Leadership
from tarry.core.messages.model import Draft
from tarry.core.messages.outcomes import Outcome
from tarry.core.security.api_keys import ApiKey
from tarry.core.security.audit import Audited, AuditEntry
from tarry.core.security.idempotency import IdempotencyKey, StoredResponse
from tarry.storage.memory.messages import offer_one
from tarry.storage.memory.state import MemoryOperation, MemoryRole, MemoryState, locked
from tarry.wire.base import same_fields

_AUDITS_KEPT = 10_000
_RESPONSES_KEPT = 10_000


class MemorySecurity(MemoryRole):
    def __init__(self, state: MemoryState) -> None:
        super().__init__(state)
        self._keys: dict[str, ApiKey] = {}
        self._audits: deque[Audited] = deque(maxlen=_AUDITS_KEPT)
        self._audit_ids = count(1)
        self._in_flight: set[tuple[str, str]] = set()
        self._responses: OrderedDict[tuple[str, str], tuple[IdempotencyKey, StoredResponse, datetime]] = OrderedDict()

    @locked
    def add_key(self, key: ApiKey, *, expires_for: timedelta | None) -> ApiKey:
        now = self._now
        if key.id in self._keys:
            raise InvalidState("a key with this id exists already", hint="try again: ids are random")
        self._keys[key.id] = key.added(now, expires_for)
        return self._keys[key.id].current(now)

    @locked
    def keys(self, ids: Sequence[str] | None = None) -> list[ApiKey]:
        chosen = (key for key in self._keys.values() if ids is None or key.id in ids)
        return [key.current(self._now) for key in sorted(chosen, key=lambda key: (key.created_at, key.id))]

    @locked
    def revoke_key(self, id: str) -> ApiKey | None:
        now = self._now
        key = self._keys.get(id)
        if key is None:
            return None
        self._keys[id] = replace(key, revoked_at=key.revoked_at or now)
        return self._keys[id].current(now)

    @locked
    def audit(self, entry: AuditEntry) -> int:
        id = next(self._audit_ids)
        self._audits.append(Audited(id=id, at=self._now, **same_fields(entry, AuditEntry)))
        return id

    @locked
    def audited(self, id: int, status: int, *, detail: Mapping[str, Any] | None = None) -> None:
        for index, row in enumerate(self._audits):
            if row.id == id:
                merged = row.detail if detail is None else {**(row.detail or {}), **detail}
                self._audits[index] = replace(row, status=status, detail=merged)

    @locked
    def audits(
        self, *, limit: int = 100, before: int | None = None, actor: str | None = None, action: str | None = None
    ) -> list[Audited]:
        rows = (
            row
            for row in reversed(self._audits)
            if (before is None or row.id < before)
            and (actor or "").lower() in row.actor.lower()
            and (action or "").lower() in row.action.lower()
        )
        return list(islice(rows, max(limit, 0)))

    @contextmanager
    def stored_response(self, request: IdempotencyKey) -> Generator[list[StoredResponse | None]]:
        """The stored response in a list (None: the key was used for another request); or an empty list, to which the block
        adds its response. Until the block ends the same request is rejected; without a response it may be sent again.
        The store's lock is free in the block."""
        key = (request.caller, request.key)
        stored: list[StoredResponse | None] = []
        with self._state.lock:
            if key in self._in_flight:
                raise LockTimeout("the same request is being executed", hint="retry the request")
            if key in self._responses:
                earlier, response, _ = self._responses[key]
                stored.append(response._replace(replayed=True) if earlier == request else None)
            else:
                self._in_flight.add(key)
        if stored:
            yield stored
            return
        try:
            yield stored
        finally:
            with self._state.locked() as now:
                self._in_flight.discard(key)
                if stored and stored[0] is not None:
                    self._responses[key] = (request, stored[0], now)
                while len(self._responses) > _RESPONSES_KEPT:
                    self._responses.popitem(last=False)

    def offer_idempotent(
        self, queue: str, draft: Draft, request: IdempotencyKey, show: Callable[[Outcome], StoredResponse]
    ) -> MemoryOperation[StoredResponse | None]:
        def call() -> StoredResponse | None:
            with self.stored_response(request) as stored:
                if not stored:
                    with self._state.locked() as now:
                        outcome = offer_one(self._state.used_queue(queue), draft, now)
                    stored.append(show(outcome))
            return stored[0]

        return MemoryOperation(call)

    @locked
    def forget_responses(
        self, older_than: timedelta, *, limit: int = 1000, leadership: Leadership | None = None
    ) -> int:
        if not self._state.leads(leadership):
            return 0
        old = [key for key, (_, _, at) in self._responses.items() if at < self._now - older_than][: max(limit, 0)]
        for key in old:
            del self._responses[key]
        return len(old)
