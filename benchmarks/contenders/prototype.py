"""The prototype of the storage design, with its journal: the statements of Tarry's hot path and nothing around them.

Batches only. It has no retries, no queue settings, no burying, no waiting consumers and one priority: a lower bound of what a
message costs with these tables, which P7 compares Tarry with in the same run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import psycopg
from psycopg import Connection

from benchmarks.contenders.originals import fresh_key
from benchmarks.contenders.protocol import AsyncSession, Body, Unavailable

SCHEMA = """
create schema prototype;
create sequence prototype.event_seq cache 100;
create table prototype.message (
    id bigint not null generated always as identity, due_at timestamptz not null, queue int not null,
    priority smallint not null default 0, lease_until timestamptz not null default '-infinity', token uuid,
    attempt int not null default 0, consumer text, key text collate "C" not null, payload bytea not null
) with (fillfactor = 45, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0);
create unique index on prototype.message (key, queue);
create index on prototype.message ((queue + 0), priority, due_at, id);
create table prototype.event (
    id bigint not null default nextval('prototype.event_seq'), xid xid8 not null default pg_current_xact_id(),
    at timestamptz not null, version bigint, due_at timestamptz, lease_until timestamptz, kind smallint not null,
    queue int not null, attempt int, size int, key text collate "C", consumer text
);
"""
OFFER = """
with offered as (
    insert into prototype.message (due_at, queue, key, payload)
    select now(), 1, k, p from unnest(%b::text[], %b::bytea[]) as t(k, p) order by k
    on conflict (key, queue) do nothing returning id, due_at, key, length(payload) as size
), logged as (
    insert into prototype.event (at, version, due_at, kind, queue, attempt, size, key)
    select now(), id, due_at, 1, 1, 0, size, key from offered
)
select id, key from offered
"""
LEASE = """
with unflushed as materialized (select set_config('synchronous_commit', 'off', true)), leased as (
    update prototype.message m
    set lease_until = now() + interval '1 hour', token = gen_random_uuid(), attempt = attempt + 1, consumer = %b
    from unflushed
    where m.ctid = any(array(
        select ctid from prototype.message
        where (queue + 0) = 1 and priority = 0 and due_at <= now() and lease_until <= now() and (due_at, id) > (%b, %b)
        order by due_at, id limit %b for update skip locked
    ))
    returning m.ctid::text as position, m.token, m.due_at, m.id, m.lease_until, m.attempt, m.consumer, m.key, m.payload
), logged as (
    insert into prototype.event (at, version, due_at, lease_until, kind, queue, attempt, key, consumer)
    select now(), id, due_at, lease_until, 2, 1, attempt, key, consumer from leased
)
select position, token, due_at, id, attempt, key, payload from leased
"""
ACK = """
with acked as (
    delete from prototype.message where ctid = any(%b::text[]::tid[]) and token = any(%b::uuid[])
    returning id, due_at, attempt, key, consumer
), logged as (
    insert into prototype.event (at, version, due_at, kind, queue, attempt, key, consumer)
    select now(), id, due_at, 3, 1, attempt, key, consumer from acked
)
select count(*) from acked
"""
CONSUMER = "worker-17.example:12345"
HEAD = datetime(1, 1, 1, tzinfo=UTC), 0


class Leased(NamedTuple):
    ctids: list[str]
    tokens: list[UUID]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prototype:
    name: str
    slug: str = "prototype"
    table: str = "prototype.message"

    def create(self, dsn: str, *, durable: bool) -> None:
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute(SCHEMA)

    def fill(self, dsn: str, n: int, *, due_in_s: float) -> None:
        raise Unavailable("it takes part in batches only")

    def open(self, dsn: str, *, durable: bool) -> PrototypeSession:
        return PrototypeSession(psycopg.connect(dsn, autocommit=True, options="-c enable_seqscan=off"))

    async def open_async(self, dsn: str, *, durable: bool) -> AsyncSession:
        raise Unavailable("it takes part in batches only")


class PrototypeSession:
    def __init__(self, conn: Connection[Any]) -> None:
        self._conn = conn
        self._cursor = conn.cursor(binary=True)
        self._position = HEAD

    def offer_many(self, bodies: Sequence[Body], keys: Sequence[str] | None = None) -> None:
        keys = [fresh_key() for _ in bodies] if keys is None else list(keys)
        self._cursor.execute(OFFER, [keys, [msgspec.json.encode(body) for body in bodies]]).fetchall()

    def poll_many(self, n: int) -> tuple[Leased, int]:
        rows = self._lease(n) or self._lease(n, HEAD)
        for row in rows:
            msgspec.json.decode(row[6])
        if rows:
            self._position = max((row[2], row[3]) for row in rows)
        return Leased([row[0] for row in rows], [row[1] for row in rows]), len(rows)

    def ack_many(self, held: Leased) -> None:
        self._cursor.execute(ACK, [held.ctids, held.tokens])

    def offer_one(self, body: Body) -> None:
        self.offer_many([body])

    def poll_one(self) -> Leased | None:
        leased, n = self.poll_many(1)
        return leased if n else None

    def ack_one(self, held: Leased) -> None:
        self.ack_many(held)

    def consume(self, n: int) -> None:
        raise Unavailable("it takes part in batches only")

    def close(self) -> None:
        self._conn.close()

    def _lease(self, n: int, position: tuple[datetime, int] | None = None) -> list[tuple[Any, ...]]:
        due_at, last = position or self._position
        return self._cursor.execute(LEASE, [CONSUMER, due_at, last, n]).fetchall()
