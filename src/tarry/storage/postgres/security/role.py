"""`SecurityRole` on PostgreSQL: API keys, the audit log, and stored responses for idempotency keys."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from functools import cache
from typing import Any, LiteralString, NamedTuple

from tarry.core.clock import Clock
from tarry.core.errors import InvalidState, LockTimeout
from tarry.core.maintenance.leadership import Leadership
from tarry.core.messages.model import Draft
from tarry.core.messages.outcomes import Outcome
from tarry.core.security.api_keys import ApiKey
from tarry.core.security.audit import AUDITS_SEARCHED, Audited, AuditEntry
from tarry.core.security.idempotency import IdempotencyKey, StoredResponse
from tarry.core.settings import StoreSettings
from tarry.storage.postgres.arrays import ByteaArray, SmallintArray, TextArray
from tarry.storage.postgres.messages import operations as ops
from tarry.storage.postgres.messages.depth import DepthBudget
from tarry.storage.postgres.messages.statements import MissingQueue, seconds, storable
from tarry.storage.postgres.operation import GroupItem, PostgresOperation, PostgresRole, fenced
from tarry.storage.postgres.statement import Op, Row, Statement, bind, each, first, made, no_result, sql, value

_MOST_ID = 2**63 - 1
_OUTCOMES = (Outcome.CREATED, Outcome.UPDATED, Outcome.IGNORED)
Recalled = dict[int, StoredResponse | None]
"""Responses by index. None: the key was used for another request. A missing index has no response yet."""


class IdempotentOffer(NamedTuple):
    draft: Draft
    request: IdempotencyKey
    show: Callable[[Outcome], StoredResponse]


class PostgresSecurity(PostgresRole):
    def __init__(self, clock: Clock, settings: StoreSettings, budget: DepthBudget) -> None:
        super().__init__(clock, settings)
        self._budget = budget

    def add_key(self, key: ApiKey, *, expires_for: timedelta | None) -> PostgresOperation[ApiKey]:
        def decode(rows: list[Row]) -> ApiKey:
            if not rows:
                raise InvalidState("a key with this id exists already", hint="try again: ids are random")
            return made(ApiKey)(rows[0])

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

    def keys(self, ids: Sequence[str] | None = None) -> PostgresOperation[list[ApiKey]]:
        return self._sql("security/keys", each(made(ApiKey)), ids=None if ids is None else list(ids))

    def revoke_key(self, id: str) -> PostgresOperation[ApiKey | None]:
        return self._sql("security/key_revoke", first(made(ApiKey)), id=id)

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
                # Most requests are sent once: responses are looked up, which takes several statements, only after a failed
                # try.
                make = offer_idempotent if operation.atomic else offer_new
                operation.atomic = True
                drafts = [item.draft for item in items]
                fits = ops.fits(queue, drafts, self._budget)
                try:
                    return (yield from make(queue, items, self._now, fits=fits))
                except MissingQueue:
                    pass  # or the queue has a depth limit

                def offer(now: datetime | None) -> Op[list[StoredResponse | None]]:
                    return ops.counted_first(queue, drafts, self._budget, lambda: make(queue, items, now, fits=True))

                return (yield from self._creating(queue, own, offer, list))

            operation = PostgresOperation(start, atomic=again)
            return operation

        def first(own: bool) -> Op[StoredResponse | None]:  # noqa: FBT001
            return (yield from batch([offer], True).start(own))[0]

        item = GroupItem("offer_idempotent", queue, offer, draft.key, draft.key, batch)
        return PostgresOperation(first, atomic=True, group_item=item)

    def recall(self, request: IdempotencyKey) -> PostgresOperation[Recalled]:
        return self._statement(lambda now: find_responses([request]))

    def keep(self, request: IdempotencyKey, response: StoredResponse) -> PostgresOperation[None]:
        return self._statement(lambda now: store_responses([(request, response)], now))

    def forget_responses(
        self, older_than: timedelta, *, limit: int = 1000, leadership: Leadership | None = None
    ) -> PostgresOperation[int]:
        older_than_s = older_than.total_seconds()
        about = {"older_than": older_than_s, "limit": storable(limit), **fenced(leadership)}
        return self._sql("security/idempotency_expire", value, **about)


def _json(detail: Mapping[str, Any] | None) -> str | None:
    return None if detail is None else json.dumps(detail)


def find_responses(requests: Sequence[IdempotencyKey]) -> Statement[Recalled]:
    def response(row: Row) -> StoredResponse | None:
        same = requests[int(row.place) - 1].fingerprint == row.fingerprint
        return StoredResponse(row.status, row.body, replayed=True) if same else None

    def decode(rows: list[Row]) -> Recalled:
        return {row.place - 1: response(row) for row in rows if row.place is not None}

    callers, keys = TextArray([r.caller for r in requests]), TextArray([r.key for r in requests])
    return bind("security/idempotency_find", decode, callers=callers, keys=keys)


def store_responses(
    responses: Sequence[tuple[IdempotencyKey, StoredResponse]], now: datetime | None
) -> Statement[None]:
    def decode(rows: list[Row]) -> None:
        if value(rows) < len(responses):
            raise LockTimeout("the same request was being executed at the same time", hint="retry the request")

    return bind("security/idempotency_store", decode, **_response_params(responses), now=now)


def _response_params(responses: Sequence[tuple[IdempotencyKey, StoredResponse]]) -> dict[str, Any]:
    return {
        "callers": TextArray([request.caller for request, _ in responses]),
        "request_keys": TextArray([request.key for request, _ in responses]),
        "fingerprints": ByteaArray([request.fingerprint for request, _ in responses]),
        "statuses": SmallintArray([response.status for _, response in responses]),
        "bodies": ByteaArray([response.body for _, response in responses]),
    }


def offer_new(
    queue: str, items: Sequence[IdempotentOffer], now: datetime | None, *, fits: bool
) -> Op[list[StoredResponse | None]]:
    """Offer and store the responses in one statement, which fails if a request has a response already or is sent twice
    (`errors.translated`). Each message key occurs once, and the batch is smaller than those sent by COPY.

    The outcome of a new key is known before the offer; otherwise the statement selects the response."""
    all_fresh = all(item.draft.fresh for item in items)
    outcomes = _OUTCOMES[:1] if all_fresh else _OUTCOMES
    shown = [{outcome: item.show(outcome) for outcome in outcomes} for item in items]
    steps = ops.offer_many(queue, [item.draft for item in items], now, fits=fits)
    offer: Any = next(steps)
    params = {
        **offer.params,
        **_response_params([(item.request, r) for item, of in zip(items, shown, strict=True) for r in of.values()]),
    }
    if not all_fresh:
        params["messages"] = TextArray([item.draft.key for item in items for _ in outcomes])
        params["outcomes"] = TextArray([outcome.value for _ in items for outcome in outcomes])
    rows = yield Statement(_keeping_responses(offer.sql, all_fresh), params, offer.decode)
    try:
        steps.send(rows)
    except StopIteration as done:
        return [of[outcome] for of, outcome in zip(shown, done.value, strict=True)]
    raise AssertionError("the offer has more than one statement")


@cache
def _keeping_responses(offer: LiteralString, all_fresh: bool) -> LiteralString:  # noqa: FBT001
    """The text of an offer with an additional step before the final `select`."""
    kept = sql("security/_idempotency_kept" if all_fresh else "security/_idempotency_kept:outcomes")
    depth = 0
    for part in re.finditer(r"[()]|\bselect\b", offer):
        depth += {"(": 1, ")": -1}.get(part[0], 0)
        if part[0] == "select" and depth == 0:
            return f"{offer[: part.start()]}{kept} {offer[part.start() :]}"
    raise AssertionError("the offer has no final select")


def offer_idempotent(
    queue: str, items: Sequence[IdempotentOffer], now: datetime | None, *, fits: bool
) -> Op[list[StoredResponse | None]]:
    """In one transaction: read the stored responses; offer the other messages and store theirs. Each message key once."""
    responses: Recalled = yield from find_responses([item.request for item in items]).run()
    first: dict[tuple[str, str], int] = {}
    for index, item in enumerate(items):
        if index not in responses:
            first.setdefault((item.request.caller, item.request.key), index)
    if first:
        new = list(first.values())
        drafts = [items[index].draft for index in new]
        outcomes = yield from ops.offer_many(queue, drafts, now, fits=fits)
        shown = [items[index].show(outcome) for index, outcome in zip(new, outcomes, strict=True)]
        yield from store_responses([(items[index].request, a) for index, a in zip(new, shown, strict=True)], now).run()
        responses |= dict(zip(new, shown, strict=True))
    for index, item in enumerate(items):
        if index not in responses:  # repeated in this batch
            same = items[twin := first[item.request.caller, item.request.key]].request == item.request
            response = responses[twin]
            responses[index] = response._replace(replayed=True) if same and response is not None else None
    return [responses[index] for index in range(len(items))]
