"""`SecurityRole` on PostgreSQL."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from tarry.core.clock import Clock
from tarry.core.errors import InvalidState
from tarry.core.maintenance.leadership import Leadership
from tarry.core.messages.model import Draft
from tarry.core.messages.outcomes import Outcome
from tarry.core.security.api_keys import Action, ApiKey
from tarry.core.security.audit import AUDITS_SEARCHED, Audited, AuditEntry
from tarry.core.security.idempotency import IdempotencyKey, StoredResponse
from tarry.core.settings import StoreSettings
from tarry.storage.postgres.arrays import TextArray
from tarry.storage.postgres.messages import operations as message_ops
from tarry.storage.postgres.messages.depth import DepthBudget
from tarry.storage.postgres.messages.statements import MissingQueue, seconds, storable
from tarry.storage.postgres.operation import GroupItem, PostgresOperation, PostgresRole
from tarry.storage.postgres.security import idempotency_statements
from tarry.storage.postgres.security.idempotency_statements import IdempotentOffer
from tarry.storage.postgres.statement import Op, Row, each, first, made, no_result, value

_MOST_ID = 2**63 - 1


class PostgresSecurity(PostgresRole):
    def __init__(self, clock: Clock, settings: StoreSettings, budget: DepthBudget) -> None:
        super().__init__(clock, settings)
        self._budget = budget

    def add_key(self, key: ApiKey, *, expires_for: timedelta | None) -> PostgresOperation[ApiKey]:
        def decode(rows: list[Row]) -> ApiKey:
            if not rows:
                raise InvalidState("a key with this id already exists", hint="retry: ids are random")
            return _key(rows[0])

        return self._sql(
            "security/key_add",
            decode,
            id=key.id,
            name=key.name,
            secret_hash=key.secret_hash,
            actions=TextArray(sorted(key.actions)),
            queues=TextArray(key.queues),
            expires_for=seconds(expires_for),
            expires_by=key.expires_at,
        )

    def find_keys(self, ids: Sequence[str]) -> PostgresOperation[list[ApiKey]]:
        return self._sql("security/keys", each(_key), ids=list(ids))

    def keys(self) -> PostgresOperation[list[ApiKey]]:
        return self._sql("security/keys", each(_key), ids=None)

    def revoke_key(self, id: str) -> PostgresOperation[ApiKey | None]:
        return self._sql("security/key_revoke", first(_key), id=id)

    def audit(self, entry: AuditEntry) -> PostgresOperation[int]:
        return self._sql("security/audit_begin", value, **asdict(entry) | {"detail": _json(entry.detail)})

    def audited(self, id: int, status: int, *, detail: Mapping[str, Any] | None = None) -> PostgresOperation[None]:
        return self._sql("security/audit_end", no_result, id=id, status=status, detail=_json(detail))

    def audits(
        self, *, limit: int = 100, before: int | None = None, actor: str | None = None, action: str | None = None
    ) -> PostgresOperation[list[Audited]]:
        params = {
            "limit": storable(limit),
            "before": _MOST_ID if before is None else before,
            "actor": actor or "",
            "action": action or "",
            "searched": AUDITS_SEARCHED,
        }
        return self._sql("security/audits", each(made(Audited)), **params)

    def offer_idempotent(
        self, queue: str, draft: Draft, request: IdempotencyKey, show: Callable[[Outcome], StoredResponse]
    ) -> PostgresOperation[StoredResponse | None]:
        offer = IdempotentOffer(draft, request, show)

        def batch(items: Sequence[IdempotentOffer], again: bool) -> PostgresOperation[list[StoredResponse | None]]:  # noqa: FBT001
            def start(own: bool) -> Op[list[StoredResponse | None]]:  # noqa: FBT001
                # Most requests are sent once: responses are looked up only after a try that failed, perhaps because they
                # exist. That takes several statements.
                make = idempotency_statements.offer_idempotent if operation.atomic else idempotency_statements.offer_new
                operation.atomic = True
                drafts = [item.draft for item in items]
                fits = message_ops.fits(queue, drafts, self._budget)
                try:
                    return (yield from make(queue, items, self._now, fits=fits))
                except MissingQueue:
                    pass  # or it has a limit

                def offer(now: datetime | None) -> Op[list[StoredResponse | None]]:
                    return message_ops.counted_first(
                        queue, drafts, self._budget, lambda: make(queue, items, now, fits=True)
                    )

                return (yield from self._creating(queue, own, offer, list))

            operation = PostgresOperation(start, atomic=again)
            return operation

        def first(own: bool) -> Op[StoredResponse | None]:  # noqa: FBT001
            return (yield from batch([offer], True).start(own))[0]

        item = GroupItem("offer_idempotent", queue, offer, draft.key, draft.key, batch)
        return PostgresOperation(first, atomic=True, group_item=item)

    def recall(self, request: IdempotencyKey) -> PostgresOperation[idempotency_statements.Recalled]:
        return self._statement(lambda now: idempotency_statements.find([request]))

    def keep(self, request: IdempotencyKey, response: StoredResponse) -> PostgresOperation[None]:
        return self._statement(lambda now: idempotency_statements.store([(request, response)], now))

    def forget_responses(
        self, older_than: timedelta, *, limit: int = 1000, leadership: Leadership | None = None
    ) -> PostgresOperation[int]:
        return self._statement(lambda now: idempotency_statements.expire(older_than, limit, leadership, now))


def _json(detail: Mapping[str, Any] | None) -> str | None:
    return None if detail is None else json.dumps(detail)


def _key(row: Row) -> ApiKey:
    return ApiKey(**row._asdict() | {"actions": frozenset(map(Action, row.actions)), "queues": tuple(row.queues)})
