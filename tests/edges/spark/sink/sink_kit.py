"""Staging and merging without Spark: the steps of tasks and drivers in a line each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString
from uuid import uuid4

import psycopg
from psycopg import sql

from tarry.core.analytics.bulk_offer import Rules, SinkWrite, Staged, StagedRow, Write
from tarry.core.messages.model import Message
from tarry.pipeline import pipeline_on
from tarry.storage.postgres.analytics.sink.bulk_offer import PostgresSink

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
US = timedelta(microseconds=1)


def sink_of(dsn: str) -> PostgresSink:
    return pipeline_on(dsn).sink


def new_write(write_id: str = "w") -> Write:
    """Another run of a write."""
    return Write(write_id=write_id, run=uuid4())


def row(queue: str, key: str, payload: Any = 0, **fields: Any) -> StagedRow:
    return staged_row(queue, Message(key=key, payload=payload, **fields))


def staged_row(queue: str, message: Message[Any]) -> StagedRow:
    """What the row reader of the sink makes of the same message."""
    return (
        queue,
        str(message.key),
        json.dumps(message.payload).encode(),
        None,
        None if message.at is None else (message.at - EPOCH) // US,
        None if message.after is None else message.after.total_seconds(),
        message.priority,
        message.type,
        json.dumps(dict(message.headers)).encode() if message.headers else None,
        message.max_attempts,
        False,
    )


def stage(dsn: str, write: Write, parts: Sequence[Sequence[StagedRow]]) -> list[Staged]:
    """Each part by a task of its own, as many blocks as there are rows."""
    staged_parts: list[Staged] = []
    for number, rows in enumerate(parts):
        with sink_of(dsn).attempt(write, number) as staging:
            for each in rows:
                staging.add([each])
            if (staged := staging.staged()) is not None:
                staged_parts.append(staged)
    return staged_parts


def offered(
    dsn: str, parts: Sequence[Sequence[StagedRow]], rules: Rules | None = None, *, now: datetime | None = None
) -> SinkWrite:
    """One whole write."""
    write = new_write(f"write-{uuid4()}")
    return sink_of(dsn).commit(write, stage(dsn, write, parts), rules or Rules(), now=now)


def counts(done: SinkWrite) -> tuple[int, int, int, int]:
    """Created, updated, ignored, superseded."""
    return done.created, done.updated, done.ignored, done.superseded


def run_sql(dsn: str, query: LiteralString, *params: Any) -> list[Any]:
    with psycopg.connect(dsn, autocommit=True) as conn:
        cursor = conn.execute(query, params)
        return cursor.fetchall() if cursor.description else []


def number(dsn: str, query: LiteralString, *params: Any) -> int:
    return run_sql(dsn, query, *params)[0][0]


def refuse(dsn: str, key: str) -> None:
    """Tasks with this key fail, until the constraint `refused` is dropped."""
    with psycopg.connect(dsn) as conn:
        conn.execute(sql.SQL("alter table tarry.message add constraint refused check (key <> {})").format(key))


def allow(dsn: str) -> None:
    run_sql(dsn, "alter table tarry.message drop constraint refused")


def staged_rows(dsn: str) -> tuple[int, int]:
    """Rows and attempts that wait."""
    return number(dsn, "select count(*) from tarry.sink_row"), number(dsn, "select count(*) from tarry.sink_attempt")


def live_keys(dsn: str) -> list[str]:
    return [key for (key,) in run_sql(dsn, "select key from tarry.message order by key")]
