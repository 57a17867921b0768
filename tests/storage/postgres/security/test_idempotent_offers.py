"""An offer with an idempotency key costs what one without costs: one statement, shared with those of other requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from tarry.api.drafts import fresh_key
from tarry.core.messages.model import KEEP, Draft
from tarry.core.messages.outcomes import Outcome
from tarry.core.security.idempotency import IdempotencyKey, StoredResponse
from tarry.core.settings import QueueSettings
from tarry.storage.postgres.prepared import PreparedStatements
from tarry.storage.postgres.store import AsyncPostgresStore
from tests.kit.settings import FOR_TESTS

N = 40


def show(outcome: Outcome) -> StoredResponse:
    return StoredResponse(201 if outcome is Outcome.CREATED else 200, outcome.value.encode())


def request(key: str, content: bytes = b"x") -> IdempotencyKey:
    return IdempotencyKey("", key, content * 32)


@asynccontextmanager
async def store_with_queue(dsn: str) -> AsyncGenerator[AsyncPostgresStore]:
    store = AsyncPostgresStore(dsn, settings=FOR_TESTS)
    await store.open()
    await store.run(store.queues.create("q", QueueSettings(), exist_ok=False))
    try:
        yield store
    finally:
        await store.close()


async def offer_all(
    store: AsyncPostgresStore, offers: Sequence[tuple[Draft, IdempotencyKey]]
) -> list[StoredResponse | None]:
    return await asyncio.gather(
        *(store.run(store.security.offer_idempotent("q", draft, key, show)) for draft, key in offers)
    )


def new_draft() -> Draft:
    return Draft(fresh_key(), b"1", fresh=True)


@pytest.mark.parametrize("with_keys", [False, True])
@pytest.mark.parametrize("n", [1, N])
def test_offers_and_their_responses_are_one_statement(
    database: str, monkeypatch: pytest.MonkeyPatch, n: int, with_keys: bool
) -> None:
    sent: list[str] = []
    execute, plain = PreparedStatements.execute, psycopg.AsyncConnection.execute

    def recorded(self: PreparedStatements, conn: Any, statement: Any) -> Any:
        sent.append(statement.sql)
        return execute(self, conn, statement)

    async def recorded_plain(self: Any, query: Any, *args: Any, **options: Any) -> Any:
        sent.append(str(query))
        return await plain(self, query, *args, **options)

    async def test() -> list[StoredResponse | None]:
        async with store_with_queue(database) as store:
            await offer_all(store, [(new_draft(), request("before"))])  # the connection is open after this
            monkeypatch.setattr(PreparedStatements, "execute", recorded)
            monkeypatch.setattr(psycopg.AsyncConnection, "execute", recorded_plain)
            drafts = [Draft(f"m{i}", b"1") if with_keys else new_draft() for i in range(n)]
            responses = await offer_all(store, [(draft, request(f"k{i}")) for i, draft in enumerate(drafts)])
            monkeypatch.undo()
            return responses

    assert asyncio.run(test()) == [StoredResponse(201, b"created")] * n
    (statement,) = sent
    assert "insert into tarry.message" in statement
    assert "insert into tarry.stored_response" in statement


def test_each_request_keeps_the_response_to_its_own_outcome(database: str) -> None:
    async def test() -> None:
        async with store_with_queue(database) as store:
            for key in ("same", "other"):
                await store.run(store.messages.offer("q", Draft(key, b"1")))
            await store.run(store.messages.offer_many("q", [Draft("due", b"1", priority=1)]))
            drafts = [Draft("other", b"2"), new_draft(), Draft("new", b"1"), Draft("due", b"1", priority=2)]
            offers = [(draft, request(f"k{i}")) for i, draft in enumerate(drafts)]
            first = await offer_all(store, offers)
            again = await offer_all(store, offers)
            assert [response and (response.status, response.body) for response in first] == [
                (200, b"updated"),
                (201, b"created"),
                (201, b"created"),
                (200, b"updated"),
            ]
            assert again == [response and response._replace(replayed=True) for response in first]

    asyncio.run(test())


def test_an_ignored_offer_keeps_that_it_was_ignored(database: str) -> None:
    async def test() -> None:
        async with store_with_queue(database) as store:
            await store.run(store.messages.offer("q", Draft("a", b"1")))
            offers = [(Draft("a", b"2", conflict=KEEP), request("k")), (Draft("b", b"1"), request("l"))]
            ignored, created = StoredResponse(200, b"ignored"), StoredResponse(201, b"created")
            assert await offer_all(store, offers) == [ignored, created]
            assert await offer_all(store, offers[:1]) == [ignored._replace(replayed=True)]

    asyncio.run(test())


def test_a_repeated_request_takes_none_of_the_others_back(database: str) -> None:
    async def test() -> None:
        async with store_with_queue(database) as store:
            created = StoredResponse(201, b"created")
            assert await offer_all(store, [(Draft("a", b"1"), request("k"))]) == [created]
            offers = [(new_draft(), request("k")), (new_draft(), request("k", b"y")), (new_draft(), request("l"))]
            assert await offer_all(store, offers) == [created._replace(replayed=True), None, created]
            stored = [await store.run(store.messages.contains("q", draft.key)) for draft, _ in offers]
            assert stored == [False, False, True]

    asyncio.run(test())


def test_nothing_is_kept_of_an_offer_that_failed(database: str) -> None:
    async def test() -> None:
        async with store_with_queue(database) as store:
            draft = new_draft()
            await store.run(store.messages.offer("q", draft))
            with pytest.raises(psycopg.errors.UniqueViolation):  # a key that is not new, though it is marked as fresh
                await offer_all(store, [(draft, request("k"))])
            assert await offer_all(store, [(new_draft(), request("k"))]) == [StoredResponse(201, b"created")]

    asyncio.run(test())


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("n", [1, 3])
def test_a_lost_reply_is_found_again(database: str, monkeypatch: pytest.MonkeyPatch, n: int, fresh: bool) -> None:
    execute, lost = PreparedStatements.execute, list[str]()

    def cut(self: PreparedStatements, conn: Any, statement: Any) -> Any:
        rows = yield from execute(self, conn, statement)
        if not lost and "insert into tarry.stored_response" in statement.sql:
            lost.append(statement.sql)
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return rows

    async def test() -> list[int]:
        async with store_with_queue(database) as store:
            monkeypatch.setattr(PreparedStatements, "execute", cut)
            offers = [(new_draft() if fresh else Draft(f"m{i}", b"1"), request(f"k{i}")) for i in range(n)]
            assert await offer_all(store, offers) == [StoredResponse(201, b"created", replayed=True)] * n
            events = [await store.run(store.journal.timeline("q", draft.key)) for draft, _ in offers]
            return [len(of_key) for of_key in events]

    assert asyncio.run(test()) == [1] * n
    assert len(lost) == 1
