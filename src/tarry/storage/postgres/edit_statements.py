"""Changing a message by hand, in one statement."""

from __future__ import annotations

import json
from datetime import datetime
from typing import NamedTuple

from tarry.core.editing import Edit
from tarry.core.fingerprints import fingerprint
from tarry.storage.postgres.arrays import FloatArray, TextArray
from tarry.storage.postgres.statement import Row, Statement, sql
from tarry.storage.postgres.statements import known, possible, retry_numbers


class Found(NamedTuple):
    """A message that is to be edited, as it was found; `edited`: whether it is another one now."""

    version: int | None
    leased: bool
    same: bool
    edited: bool


def edit(
    queue: str, key: str, edit: Edit, version: int | None, now: datetime | None, *, force: bool
) -> Statement[Found]:
    params = {
        "queue": queue,
        "key": key,
        "now": now,
        "named": TextArray(sorted(edit.named)),
        "payload": edit.payload,
        "content_type": edit.content_type,
        "due_at": edit.due_at,
        "delay": edit.delay,
        "priority": edit.priority,
        "type": edit.type,
        "headers": None if edit.headers is None else json.dumps(dict(edit.headers)),
        "lease_for": edit.lease_for,
        "max_attempts": edit.max_attempts,
        "retry": None if edit.retry is None else FloatArray(retry_numbers(edit.retry)),
        "version": None if version is None else possible(version),
        "force": force,
        "detail": json.dumps(edit.detail),
    }

    def decode(rows: list[Row]) -> Found:
        seen, leased, same, after = known(queue, rows)[0][:4]
        return Found(seen, bool(leased), bool(same), after is not None)

    return Statement(sql("edit"), params, decode)


def give_up(
    queue: str, key: str, error: str | None, version: int | None, now: datetime | None, *, force: bool
) -> Statement[Found]:
    params = {
        "queue": queue,
        "key": key,
        "error": error,
        "fingerprint": fingerprint("buried", error),
        "version": None if version is None else possible(version),
        "now": now,
        "force": force,
    }

    def decode(rows: list[Row]) -> Found:
        seen, leased, gone = known(queue, rows)[0]
        return Found(seen, leased=bool(leased), same=False, edited=gone)

    return Statement(sql("give_up"), params, decode)
