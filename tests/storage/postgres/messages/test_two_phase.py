"""Two-phase commit: PostgreSQL prepares no transaction that has notified, so a store can be configured not to."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tarry.core.messages.model import Draft, Failure
from tarry.core.messages.outcomes import Settled
from tarry.core.settings import QueueSettings, StoreSettings
from tarry.storage.postgres._sync.store import PostgresStore
from tarry.storage.postgres.runner import silent
from tarry.storage.postgres.statement import sql
from tarry.storage.postgres.store import AsyncPostgresStore
from tests.storage.postgres.fallible import FallibleServer, fallible_server

QUEUE = "prepared"
SILENT = StoreSettings(notify_with_conn=False)


@pytest.fixture(scope="module")
def preparing() -> Iterator[FallibleServer]:
    """A server that prepares transactions."""
    with fallible_server() as server:
        with psycopg.connect(server.dsn, autocommit=True) as conn:
            conn.execute("alter system set max_prepared_transactions = 10")
        server.restart()
        yield server


@pytest.fixture
def waiter(preparing: FallibleServer) -> Iterator[PostgresStore]:
    """A consumer of the queue that waits for anything, so that every offer has a reason to notify."""
    store = PostgresStore(preparing.dsn)
    store.run(store.queues.create(QUEUE, QueueSettings(), exist_ok=True))
    store.run(store.messages.purge(QUEUE))
    while True:
        with psycopg.connect(preparing.dsn) as conn:
            row = conn.execute("select count(*) from tarry.waiter").fetchone()
        if row is not None and row[0]:
            break
        store.run(store.wakeup.announce(QUEUE, sleep_for=timedelta(minutes=10)))
    yield store
    store.close()


def test_a_transaction_that_has_notified_cannot_be_prepared(preparing: FallibleServer, waiter: PostgresStore) -> None:
    with psycopg.connect(preparing.dsn) as conn:
        conn.tpc_begin("loud")
        waiter.run(waiter.messages.offer(QUEUE, Draft("k", b"")), conn=conn)
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="NOTIFY"):
            conn.tpc_prepare()
        conn.close()


def test_every_verb_of_a_silent_store_can_be_prepared(preparing: FallibleServer, waiter: PostgresStore) -> None:
    store = PostgresStore(preparing.dsn, settings=SILENT)
    with psycopg.connect(preparing.dsn) as conn:
        conn.tpc_begin("silent")
        store.run(store.messages.offer(QUEUE, Draft("a", b"")), conn=conn)
        store.run(store.messages.offer(QUEUE, Draft("b", b"", fresh=True)), conn=conn)
        store.run(store.messages.offer_many(QUEUE, [Draft(f"k{i}", b"", fresh=True) for i in range(2_000)]), conn=conn)
        first, second, third = store.run(store.messages.poll(QUEUE, 3, lambda data, _: data), conn=conn)
        assert store.run(store.messages.nack(QUEUE, [Failure(first.lease_id)]), conn=conn) == [Settled.DONE]
        assert store.run(store.messages.release(QUEUE, [second.lease_id]), conn=conn) == [Settled.DONE]
        assert store.run(store.messages.bury(QUEUE, [third.lease_id]), conn=conn) == [Settled.DONE]
        assert store.run(store.dead_letters.redrive(QUEUE), conn=conn) == 1
        store.run(store.queues.pause(QUEUE), conn=conn)
        store.run(store.queues.resume(QUEUE), conn=conn)
        conn.tpc_prepare()
        assert not waiter.run(waiter.messages.contains(QUEUE, "a"))
        conn.tpc_commit()
    assert waiter.run(waiter.messages.contains(QUEUE, "a"))
    store.close()


def test_an_awaiting_store_can_be_silent_too(preparing: FallibleServer, waiter: PostgresStore) -> None:
    async def work() -> None:
        store = AsyncPostgresStore(preparing.dsn, settings=SILENT)
        await store.open()
        async with await psycopg.AsyncConnection.connect(preparing.dsn) as conn:
            await conn.tpc_begin("awaited")
            await store.run(store.messages.offer(QUEUE, Draft("awaited", b"")), conn=conn)
            await conn.tpc_prepare()
            await conn.tpc_commit()
        assert await store.run(store.messages.contains(QUEUE, "awaited"))
        await store.close()

    asyncio.run(work())


def test_no_statement_notifies_in_another_way() -> None:
    """What `silent` takes out is all there is."""
    messages = [f"messages/{name}" for name in ("offer", "offer_fresh", "nack", "release", "edit")]
    verbs: Any = (*messages, "dead_letters/redrive", "dead_letters/redrive_step", "queues/pause", "wakeup/notify")
    for verb in verbs:
        assert "notify" in sql(verb)
        assert "notify" not in silent(sql(verb))
