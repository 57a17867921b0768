"""What each part of a single offer costs: `python -m benchmarks.ablation [ROUNDS]`.

The statements are prepared and sent by libpq, from one process over one connection, in turns. Printed is the least CPU of a
round per message, client + server process. The first line is the SQL of the originals, the last one a whole offer of Tarry.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import LiteralString

import psycopg
from psycopg.pq import ExecStatus, Format

import tarry
from benchmarks.contenders.originals_sql import SCHEMA
from benchmarks.measure import Meter
from benchmarks.server import running_server
from tarry.core.ids import uuid7
from tarry.storage.postgres.connections import configure

N = 300
BODY = b'{"order": 17, "customer": "c-4711", "lines": [1, 2, 3]}'
_QUEUE: LiteralString = (
    "with q as materialized (select id, journal, statement_timestamp() as now from tarry.queue where name = 'one')"
)
_ROW: LiteralString = (
    "insert into tarry.message (queue, key, payload, due_at, planned_at, created_at, priority, conflict)"
)
_STORED: LiteralString = f"""stored as (
    {_ROW} select id, $1::text, $2::bytea, now, now, now, 0, 0 from q returning version, due_at)"""
_EVENT: LiteralString = """journaled as (
    insert into tarry.event (kind, at, queue, key, version, attempt, priority, due_at, size, payload_hash)
    select 'offered', q.now, q.id, $1::text, s.version, 0, 0, s.due_at, octet_length($2::bytea),
        substr(sha256($2::bytea), 1, 8)
    from q cross join stored s where q.journal <> 'off')"""
STATEMENTS: dict[str, LiteralString] = {
    "originals' INSERT, no journal": """insert into "delayed_queue" ("pKey", "pKind", "payload", "scheduledAt",
        "scheduledAtInitially", "createdAt") values ($1::text, 'one', $2::bytea, 1, 1, 1)
        on conflict ("pKey", "pKind") do nothing""",
    "INSERT of Tarry's row": f"{_ROW} values (1, $1::text, $2::bytea, now(), now(), now(), 0, 0)",
    "+ look up the queue": f"{_QUEUE}, {_STORED} select from stored",
    "+ journal row": f"{_QUEUE}, {_STORED}, {_EVENT} select from stored",
}
WHOLE = "Tarry's offer (+ waiting consumers, library)"


def main(rounds: int) -> None:
    with running_server(None, Path("/dev/shm")) as server:
        dsn = server.database("ablation")
        with (
            tarry.connect(dsn, migrate=True, allow_unsafe=True) as app,
            psycopg.connect(dsn, autocommit=True) as admin,
            psycopg.connect(dsn, autocommit=True) as conn,
        ):
            queue = app.queue("one")
            queue.offer(None, 1)
            for statement in SCHEMA:
                admin.execute(statement)
            configure(conn)
            for name, text in STATEMENTS.items():
                done = conn.pgconn.prepare(name.encode(), text.encode())
                assert done.status == ExecStatus.COMMAND_OK, done.error_message
            costs: dict[str, list[tuple[float, float]]] = {name: [] for name in (*STATEMENTS, WHOLE)}
            meter = Meter(admin)
            for _ in range(rounds + 1):
                for name, samples in costs.items():
                    keys = [str(uuid7(time.time_ns(), os.urandom(8))).encode() for _ in range(N)]
                    with meter.slice() as worked:
                        for key in keys:
                            if name == WHOLE:
                                queue.offer(None, {"order": 17, "customer": "c-4711", "lines": [1, 2, 3]})
                            else:
                                conn.pgconn.exec_prepared(name.encode(), [key, BODY], [Format.BINARY] * 2)
                    sample = meter.sample(worked, N)
                    samples.append((sample.client_us, sample.backend_us or 0.0))
    for name, samples in costs.items():
        client, backend = (min(side) for side in zip(*samples[1:], strict=True))
        print(f"{name:46}{client:7.1f} + {backend:6.1f} = {client + backend:6.1f} µs")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 15)
