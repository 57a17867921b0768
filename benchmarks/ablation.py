"""What each part of a single offer, and of a single poll with its ack, costs: `python -m benchmarks.ablation [ROUNDS]`.

The statements are prepared and sent by libpq, from one process over one connection, in turns. Printed is the least CPU of a
round per message, client + server process. The first line is the SQL of the originals, the last ones are Tarry's library.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from psycopg import Connection
from psycopg.pq import ExecStatus, Format

import tarry
from benchmarks.contenders.originals_sql import SCHEMA
from benchmarks.measure import Meter
from benchmarks.server import running_server
from tarry import Queue
from tarry.core.journal.events import JournalLevel
from tarry.core.messages.model import LeaseId, PollOptions
from tarry.core.settings import QueueSettings
from tarry.storage.postgres.connections import configure
from tarry.storage.postgres.messages import statements
from tarry.storage.postgres.messages.lease_tokens import lease_tokens
from tarry.storage.postgres.messages.statements import HEAD
from tarry.storage.postgres.prepared import PreparedStatements, session_of

N = 300
PAYLOAD = {"order": 17, "customer": "c-4711", "lines": [1, 2, 3]}
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
INSERTS: dict[str, LiteralString] = {
    "originals' INSERT, no journal": """insert into "delayed_queue" ("pKey", "pKind", "payload", "scheduledAt",
        "scheduledAtInitially", "createdAt") values ($1::text, 'one', $2::bytea, 1, 1, 1)
        on conflict ("pKey", "pKind") do nothing""",
    "INSERT of Tarry's row": f"{_ROW} values (1, $1::text, $2::bytea, now(), now(), now(), 0, 0)",
    "+ look up the queue": f"{_QUEUE}, {_STORED} select from stored",
    "+ journal row": f"{_QUEUE}, {_STORED}, {_EVENT} select from stored",
}
OFFER = "Tarry's offer (+ waiting consumers, library)"
_FIRST: LiteralString = """ctid = any (array(select c.ctid from tarry.message c where (c.queue + 0) = 1 and c.priority = 0
    and c.due_at <= statement_timestamp() and c.lease_until <= statement_timestamp() order by c.due_at, c.version
    limit 1 for update skip locked))"""
_LEASE: LiteralString = f"""update tarry.message set attempt = attempt + 1, leased_at = clock_timestamp(),
    lease_until = clock_timestamp() + interval '1h', token = 1, consumer = 'c' where {_FIRST}
    returning ctid, key, payload, version"""
CONSUMING: dict[str, Sequence[LiteralString]] = {
    "DELETE of the first row, no lease": [f"delete from tarry.message where {_FIRST} returning ctid, key, payload"],
    "UPDATE that leases it, then DELETE": [_LEASE, "delete from tarry.message where ctid = $1::tid and token = 1"],
}
STATEMENTS = "Tarry's poll and ack, their statements only"
LIBRARY = "Tarry's poll and ack (library)"


def main(rounds: int) -> None:
    with running_server(None, Path("/dev/shm")) as server:
        dsn = server.database("ablation")
        with (
            tarry.connect(dsn, migrate=True, allow_unsafe=True) as app,
            psycopg.connect(dsn, autocommit=True) as admin,
            psycopg.connect(dsn, autocommit=True) as conn,
        ):
            queue, silent = app.queue("one"), app.queue("off")
            queue.offer(None, 1)  # queue number 1
            app.queues.create("off", QueueSettings(journal=JournalLevel.OFF))
            for statement in SCHEMA:
                admin.execute(statement)
            configure(conn)
            session = session_of(conn)
            assert session is not None

            offering = {name: _inserting(conn, name, text) for name, text in INSERTS.items()}
            offering[OFFER] = lambda: _offered(queue)
            consuming = {name: _sending(conn, name, texts) for name, texts in CONSUMING.items()}
            consuming[f"{STATEMENTS}, journal off"] = lambda: _polled_and_acked(conn, session, "off")
            consuming[STATEMENTS] = lambda: _polled_and_acked(conn, session, "one")
            consuming[LIBRARY] = lambda: _consumed(queue)

            costs: dict[str, list[tuple[float, float]]] = {name: [] for name in (*offering, *consuming)}
            meter = Meter(admin)
            for _ in range(rounds + 1):
                for name, samples in costs.items():
                    if name in consuming:
                        admin.execute("delete from tarry.message")
                        filled = silent if name.endswith("off") else queue
                        filled.offer_many([tarry.Message(payload=PAYLOAD) for _ in range(N)])
                    with meter.slice() as worked:
                        (offering | consuming)[name]()
                    sample = meter.sample(worked, N)
                    samples.append((sample.client_us, sample.backend_us or 0.0))
    for name, samples in costs.items():
        client, backend = (min(side) for side in zip(*samples[1:], strict=True))
        print(f"{name:46}{client:7.1f} + {backend:6.1f} = {client + backend:6.1f} µs")


def _prepared(conn: Connection[Any], name: str, text: LiteralString) -> bytes:
    done = conn.pgconn.prepare(name.encode(), text.encode())
    assert done.status == ExecStatus.COMMAND_OK, done.error_message
    return name.encode()


def _inserting(conn: Connection[Any], name: str, text: LiteralString) -> Callable[[], None]:
    statement, prefix, numbers = _prepared(conn, name, text), name[:12].encode(), count()

    def insert() -> None:
        for _ in range(N):
            key = b"%s-%016d" % (prefix, next(numbers))  # they grow, as generated keys do
            conn.pgconn.exec_prepared(statement, [key, BODY], [Format.BINARY] * 2)

    return insert


def _offered(queue: Queue[Any]) -> None:
    for _ in range(N):
        queue.offer(None, PAYLOAD)


def _sending(conn: Connection[Any], name: str, texts: Sequence[LiteralString]) -> Callable[[], None]:
    first, *rest = [_prepared(conn, f"{name} {i}", text) for i, text in enumerate(texts)]

    def consume() -> None:
        for _ in range(N):
            result = conn.pgconn.exec_prepared(first, [], None, Format.BINARY)
            assert result.ntuples == 1, result.error_message
            for statement in rest:
                tid = b"(%d,%d)" % struct.unpack(">IH", result.get_value(0, 0) or b"")
                conn.pgconn.exec_prepared(statement, [tid])

    return consume


def _polled_and_acked(conn: Connection[Any], session: PreparedStatements, queue: str) -> None:
    options = PollOptions(consumer="worker-17.example:12345")
    for number in range(N):
        poll = statements.poll(queue, 1, HEAD, options, number=number, durable=False, now=None)
        (row,) = session.run(conn, poll)
        ack = statements.ack(queue, [LeaseId(row.key, lease_tokens(number, [row.tid])[0])], None)
        assert session.run(conn, ack)[0].settled == 1


def _consumed(queue: Queue[Any]) -> None:
    for _ in range(N):
        delivery = queue.try_poll()
        assert delivery is not None
        delivery.ack()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 15)
