"""`SecurityRole` on Redis: API keys, the audit log, and stored responses of idempotency keys."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec

from tarry.core.errors import InvalidState, LockTimeout
from tarry.core.maintenance.leadership import Leadership
from tarry.core.messages.model import Draft
from tarry.core.messages.outcomes import Outcome
from tarry.core.security.api_keys import ApiKey
from tarry.core.security.audit import AUDITS_SEARCHED, Audited, AuditEntry
from tarry.core.security.idempotency import IdempotencyKey, StoredResponse
from tarry.storage.redis.messages.steps import Offers
from tarry.storage.redis.operation import Op, RedisRole, RoleContext, duration, instant, operation

_PAGE = 1_000
_TRIES = 10
_KEPT_FOR = timedelta(days=1)
"""How long a queue remembers an idempotent offer whose response was not stored, because its process ended."""


class RedisSecurity(RedisRole):
    def __init__(self, context: RoleContext, offers: Offers) -> None:
        super().__init__(context)
        self._offers = offers

    @operation
    def add_key(self, key: ApiKey, *, expires_for: timedelta | None) -> Op[ApiKey]:
        now = instant((yield from self._registry("security/keys", ids=[]))[0])
        stored = key.added(now, expires_for)
        if not (yield from self._registry("security/add_key", [msgspec.json.encode(stored)], id=key.id)):
            raise InvalidState("there is a key with this id already", hint="try again: ids are random")
        return stored.current(now)

    @operation
    def keys(self, ids: Sequence[str] | None = None) -> Op[list[ApiKey]]:
        now, rows = yield from self._registry("security/keys", ids=None if ids is None else list(ids))
        keys = [_key(row).current(instant(now)) for row in rows]
        return sorted(keys, key=lambda key: (key.created_at, key.id))

    @operation
    def revoke_key(self, id: str) -> Op[ApiKey | None]:
        for _ in range(_TRIES):
            now, rows = yield from self._registry("security/keys", ids=[id])
            if not rows:
                return None
            key = _key(rows[0])
            revoked = replace(key, revoked_at=key.revoked_at or instant(now))
            if (yield from self._registry("security/set_key", [msgspec.json.encode(revoked), rows[0]], id=id)):
                return revoked.current(instant(now))
        raise LockTimeout(f"the key {id} changes all the time", hint="try again")

    @operation
    def audit(self, entry: AuditEntry) -> Op[int]:
        return (yield from self._registry("security/audit", [msgspec.json.encode(entry)]))

    @operation
    def audited(self, id: int, status: int, *, detail: Mapping[str, Any] | None = None) -> Op[None]:
        yield from self._registry("security/audited", [msgspec.json.encode([status, detail])], id=id)

    @operation
    def audits(
        self, *, limit: int = 100, before: int | None = None, actor: str | None = None, action: str | None = None
    ) -> Op[list[Audited]]:
        matching: list[Audited] = []
        for _ in range(AUDITS_SEARCHED // _PAGE):
            before, rows = yield from self._registry("security/audits", before=before, limit=_PAGE)
            matching += [
                row
                for row in map(_audited, rows)
                if (actor or "").lower() in row.actor.lower() and (action or "").lower() in row.action.lower()
            ]
            if len(matching) >= limit or not before or before <= 1:
                break
        return matching[: max(limit, 0)]

    @operation
    def claim(self, request: IdempotencyKey) -> Op[list[StoredResponse | None]]:
        """The stored response in a list (None: the key was used for another request), or an empty list: execute it."""
        return (yield from self._claim(request))

    def _claim(self, request: IdempotencyKey) -> Op[list[StoredResponse | None]]:
        params = {"key": _id(request), "fingerprint": request.fingerprint.hex()}
        state, *stored = yield from self._registry("security/claim", **params)
        if state == b"busy":
            raise LockTimeout("the same request is being executed", hint="retry the request")
        if state == b"other":
            return [None]
        return [StoredResponse(stored[0], stored[1], replayed=True)] if stored else []

    @operation
    def keep(self, request: IdempotencyKey, response: StoredResponse | None) -> Op[None]:
        """Store the response of a claimed request; None: it failed, and may be executed again."""
        yield from self._keep(request, response)

    def _keep(self, request: IdempotencyKey, response: StoredResponse | None) -> Op[None]:
        status, body = (None, b"") if response is None else (response.status, response.body)
        params = {"key": _id(request), "fingerprint": request.fingerprint.hex(), "status": status}
        yield from self._registry("security/keep", [body], **params)

    @operation
    def offer_idempotent(
        self, queue: str, draft: Draft, request: IdempotencyKey, show: Callable[[Outcome], StoredResponse]
    ) -> Op[StoredResponse | None]:
        """The queue remembers the offer by the idempotency key, so a process that ends before the response is stored leaves
        an offer that the repeated request does not make again."""
        stored = yield from self._claim(request)
        if stored:
            return stored[0]
        once: dict[str, Any] = {
            "slot": _id(request),
            "request": request.fingerprint.hex(),
            "keep_for": duration(_KEPT_FOR),
        }
        try:
            response = show((yield from self._offers.offer(queue, [draft], **once))[0])
        except BaseException:
            yield from self._keep(request, None)
            raise
        yield from self._keep(request, response)
        return response

    @operation
    def forget_responses(
        self, older_than: timedelta, *, limit: int = 1000, leadership: Leadership | None = None
    ) -> Op[int]:
        if not (yield from self._leads(leadership)):
            return 0
        params = {"older_than": duration(older_than), "limit": max(limit, 0)}
        return (yield from self._registry("security/forget", **params))


def _id(request: IdempotencyKey) -> str:
    """Of fixed length, whatever the caller chose."""
    return hashlib.sha256(f"{request.caller}\0{request.key}".encode()).hexdigest()[:40]


def _key(text: bytes) -> ApiKey:
    return msgspec.json.decode(text, type=ApiKey)


def _audited(row: Any) -> Audited:
    id, at, text, ended = row
    fields: dict[str, Any] = msgspec.json.decode(text)
    status, more = msgspec.json.decode(ended) if ended else (None, None)
    if more is not None:
        fields["detail"] = {**(fields["detail"] or {}), **more}
    return Audited(**fields, id=id, at=instant(at), status=status)
