"""API keys and the audit, one statement each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from tarry.core.audit import Audited
from tarry.core.errors import Refused
from tarry.core.keys import Action, ApiKey
from tarry.storage.postgres.arrays import TextArray
from tarry.storage.postgres.statement import Row, Statement, sql


def add(key: ApiKey, expires_for: timedelta | None, now: datetime | None) -> Statement[ApiKey]:
    params = {
        "id": key.id,
        "name": key.name,
        "secret_hash": key.secret_hash,
        "actions": TextArray(sorted(key.actions)),
        "queues": TextArray(key.queues),
        "expires_for": None if expires_for is None else expires_for.total_seconds(),
        "expires_by": key.expires_at,
        "now": now,
    }

    def decode(rows: list[Row]) -> ApiKey:
        if not rows:
            raise Refused("there is a key with this id already", hint="try again: ids are random")
        return _key(rows[0])

    return Statement(sql("key_add"), params, decode)


def find(ids: Sequence[str], now: datetime | None) -> Statement[list[ApiKey]]:
    return Statement(sql("keys"), {"ids": list(ids), "now": now}, lambda rows: [_key(row) for row in rows])


def every(now: datetime | None) -> Statement[list[ApiKey]]:
    return Statement(sql("keys"), {"ids": None, "now": now}, lambda rows: [_key(row) for row in rows])


def revoke(id: str, now: datetime | None) -> Statement[ApiKey | None]:
    return Statement(sql("key_revoke"), {"id": id, "now": now}, _maybe_key)


def audit(
    actor: str,
    action: str,
    queue: str | None,
    detail: Mapping[str, Any] | None,
    request_id: str | None,
    now: datetime | None,
) -> Statement[int]:
    params = {
        "actor": actor,
        "action": action,
        "queue": queue,
        "detail": None if detail is None else json.dumps(detail),
        "request_id": request_id,
        "now": now,
    }
    return Statement(sql("audit"), params, lambda rows: rows[0][0])


def audited(id: int, status: int, detail: Mapping[str, Any] | None) -> Statement[None]:
    params = {"id": id, "status": status, "detail": None if detail is None else json.dumps(detail)}
    return Statement(sql("audited"), params, lambda rows: None)


def audits(limit: int) -> Statement[list[Audited]]:
    def decode(rows: list[Row]) -> list[Audited]:
        return [
            Audited(id=r[0], at=r[1], actor=r[2], action=r[3], queue=r[4], detail=r[5], request_id=r[6], status=r[7])
            for r in rows
        ]

    return Statement(sql("audits"), {"limit": max(0, min(limit, 2**31 - 1))}, decode)


def _maybe_key(rows: list[Row]) -> ApiKey | None:
    return _key(rows[0]) if rows else None


def _key(row: Row) -> ApiKey:
    return ApiKey(
        id=row[0], name=row[1], actions=frozenset(map(Action, row[2])), queues=tuple(row[3]), secret_hash=row[4],
        created_at=row[5], expires_at=row[6], revoked_at=row[7], active=row[8],
    )  # fmt: skip
