"""DelayedQueue's SQL with the driver that Tarry uses, and client code without anything that would hold it back.

Generous where the document leaves room: a single insert or delete commits by itself in one round trip, there is no
retry wrapper, and statements are prepared as psycopg does by default.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, LiteralString, cast

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg_pool import AsyncConnectionPool

from benchmarks.contenders import originals_sql as sql
from benchmarks.contenders.protocol import Body, consume_one_by_one
from tarry.core.ids import uuid7

KIND = hashlib.md5(b"bench|java.lang.String").hexdigest()
ACQUIRE_MS = 3_600_000
POOL_SIZE = 10  # HikariCP's default


@dataclass(frozen=True, slots=True, kw_only=True)
class Originals:
    name: str
    slug: str = "originals"
    table: str = "delayed_queue"

    def create(self, dsn: str, *, durable: bool) -> None:
        with psycopg.connect(dsn, autocommit=True) as conn:
            for statement in sql.SCHEMA:
                conn.execute(statement)

    def fill(self, dsn: str, n: int, *, due_in_s: float, first: int = 1) -> None:
        """`first`: the number in the key of the first message."""
        now = now_ms()
        due = now + int(due_in_s * 1000)
        values = {"kind": KIND, "payload": b'{"filled": true}', "first": first, "n": n, "now": now, "due": due}
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute(sql.FILL, values)

    def open(self, dsn: str, *, durable: bool) -> OriginalsSession:
        return OriginalsSession(psycopg.connect(dsn, autocommit=True))

    async def open_async(self, dsn: str, *, durable: bool) -> AsyncOriginalsSession:
        pool = AsyncConnectionPool[AsyncConnection[Any]](
            dsn, kwargs={"autocommit": True}, min_size=POOL_SIZE, max_size=POOL_SIZE, open=False
        )
        await pool.open(wait=True)
        return AsyncOriginalsSession(pool)


class OriginalsSession:
    def __init__(self, conn: Connection[Any]) -> None:
        self._conn = conn
        self.acquire_ms = ACQUIRE_MS

    def offer_one(self, body: Body) -> None:
        now = now_ms()
        self._conn.execute(sql.OFFER, [fresh_key(), KIND, json.dumps(body).encode(), now, now, now])

    def offer_many(self, bodies: Sequence[Body], keys: Sequence[str] | None = None) -> None:
        keys = [fresh_key() for _ in bodies] if keys is None else keys
        now = now_ms()
        with self._conn.transaction():
            taken = {row[0] for row in self._conn.execute(_literal(sql.existing(len(keys))), [KIND, *keys])}
            rows = [
                (key, KIND, json.dumps(body).encode(), now, now, None, now)
                for key, body in zip(keys, bodies, strict=True)
                if key not in taken
            ]
            for start in range(0, len(rows), sql.INSERT_CHUNK):
                chunk = rows[start : start + sql.INSERT_CHUNK]
                self._conn.execute(_literal(sql.insert(len(chunk))), list(chain.from_iterable(chunk)))

    def poll_one(self) -> str | None:
        while True:
            now = now_ms()
            with self._conn.transaction():
                row = self._conn.execute(sql.SELECT_FIRST, [KIND, now]).fetchone()
                if row is None:
                    return None
                lock = str(uuid.uuid4())
                acquired = self._conn.execute(sql.ACQUIRE, [now + self.acquire_ms, lock, row[1], KIND, row[4]]).rowcount
                if acquired:
                    json.loads(row[3])
                    return lock

    def ack_one(self, held: str) -> None:
        self._conn.execute(sql.ACK, [held])

    def consume(self, n: int) -> None:
        consume_one_by_one(self, n)

    def poll_many(self, n: int) -> tuple[str, int]:
        lock, now = str(uuid.uuid4()), now_ms()
        with self._conn.transaction():
            acquired = self._conn.execute(sql.ACQUIRE_MANY, [lock, now + self.acquire_ms, KIND, now, n]).rowcount
            for row in self._conn.execute(sql.SELECT_LOCKED, [lock, n]).fetchall():
                json.loads(row[3])
        # Under a nested loop the subquery runs again for every row, and more than n are acquired: they are neither read
        # nor handed over, and the ack deletes them. They are counted, or there would be nothing left to consume.
        return lock, acquired

    def ack_many(self, held: str) -> None:
        self._conn.execute(sql.ACK, [held])

    def close(self) -> None:
        self._conn.close()


class AsyncOriginalsSession:
    def __init__(self, pool: AsyncConnectionPool[AsyncConnection[Any]]) -> None:
        self._pool = pool

    async def offer_one(self, body: Body) -> None:
        now = now_ms()
        async with self._pool.connection() as conn:
            await conn.execute(sql.OFFER, [fresh_key(), KIND, json.dumps(body).encode(), now, now, now])

    async def lease(self, n: int) -> Sequence[str]:
        async with self._pool.connection() as conn:
            cursor = await conn.execute(sql.LEASE_EACH, [now_ms() + ACQUIRE_MS, KIND, n])
            return [row[0] for row in await cursor.fetchall()]

    async def ack_one(self, held: str) -> None:
        async with self._pool.connection() as conn:
            await conn.execute(sql.ACK, [held])

    async def close(self) -> None:
        await self._pool.close()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def fresh_key() -> str:
    """The keys that Tarry generates: they are kind to the unique index, and the originals have none of their own."""
    return str(uuid7(time.time_ns(), os.urandom(8)))


def _literal(text: str) -> LiteralString:
    """Built from a number and nothing else."""
    return cast("LiteralString", text)
