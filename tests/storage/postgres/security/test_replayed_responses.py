"""A replayed response is as durable as the first: it waits for the synchronous standby too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tarry.core.messages.model import Draft
from tarry.core.messages.outcomes import Outcome
from tarry.core.security.idempotency import IdempotencyKey, StoredResponse
from tarry.core.settings import QueueSettings
from tarry.storage.postgres._sync.store import PostgresStore
from tarry.storage.postgres.store import AsyncPostgresStore
from tests.kit.sleepers import until
from tests.kit.standby import standby_of
from tests.storage.postgres.fallible import fallible_server

REQUEST = IdempotencyKey("", "the same request", b"x" * 32)


def show(outcome: Outcome) -> StoredResponse:
    return StoredResponse(201, outcome.value.encode())


def offer_idempotent(store: PostgresStore, dsn: str) -> StoredResponse | None:
    return store.run(store.security.offer_idempotent("orders", Draft("a", b"1"), REQUEST, show))


def offer_in_a_group(store: PostgresStore, dsn: str) -> StoredResponse | None:
    async def offer() -> StoredResponse | None:
        grouping = AsyncPostgresStore(dsn)
        await grouping.open()
        try:
            return await grouping.run(grouping.security.offer_idempotent("orders", Draft("a", b"1"), REQUEST, show))
        finally:
            await grouping.close()

    return asyncio.run(offer())


def once(store: PostgresStore, dsn: str) -> StoredResponse | None:
    return store.run_idempotent(
        REQUEST, lambda conn: show(store.run(store.messages.offer("orders", Draft("a", b"1")), conn=conn))
    )


@pytest.mark.parametrize("send", [offer_idempotent, offer_in_a_group, once])
def test_a_replayed_response_waits_for_the_standby_and_survives_the_primary(
    send: Callable[[PostgresStore, str], StoredResponse | None],
) -> None:
    with fallible_server() as primary, standby_of(primary.dsn, synchronous=True) as standby:
        store = PostgresStore(primary.dsn)
        store.run(store.queues.create("orders", QueueSettings(), exist_ok=False))
        standby.pause_receive()
        with ThreadPoolExecutor(max_workers=1) as thread:
            response = thread.submit(send, store, primary.dsn)
            (first,) = until_waiting_for_standby(primary.dsn, other_than=frozenset())
            primary.terminate()  # it is committed here, and nowhere else
            until(lambda: response.done() or waiting_for_standby(primary.dsn) - {first}, "no second try")
            assert not response.done(), "it returned, though the standby does not have it"
            standby.resume_receive()
            assert response.result() == StoredResponse(201, b"created", replayed=True)
        store.close()
        primary.stop()
        standby.promote()
        store = PostgresStore(standby.dsn)
        assert store.run(store.messages.contains("orders", "a"))
        store.close()


def until_waiting_for_standby(dsn: str, other_than: frozenset[int]) -> frozenset[int]:
    until(lambda: waiting_for_standby(dsn) - other_than, "no commit waits for the standby")
    return waiting_for_standby(dsn) - other_than


def waiting_for_standby(dsn: str) -> frozenset[int]:
    with psycopg.connect(dsn, application_name="test", autocommit=True) as conn:
        rows = conn.execute(
            "select pid from pg_stat_activity where wait_event = 'SyncRep' and application_name = 'tarry'"
        )
        return frozenset(pid for (pid,) in rows)
