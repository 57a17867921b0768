"""A statement that runs for too long is ended by the database; what is meant to take long is not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest

import tarry
from tarry import Message, Outcome
from tarry.app import App
from tarry.core.errors import StoreUnavailable
from tarry.core.limits import PURGE_CONFIRMATION
from tarry.core.settings import StoreSettings

SHORT = StoreSettings(statement_for=timedelta(milliseconds=300))
_SLOW = """
    create function pg_temp_slow() returns trigger language plpgsql as $$ begin perform pg_sleep(1); return null; end $$;
    create trigger slow before insert or delete on tarry.message for each statement execute function pg_temp_slow();
"""


def slow(dsn: str) -> None:
    """From now on, whatever inserts into the messages or deletes from them takes longer than a statement may."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(_SLOW)


@pytest.fixture
def app(database: str) -> Iterator[App]:
    with tarry.connect(database, settings=SHORT) as app:
        app.queues.create("q")
        yield app


def test_a_statement_that_takes_too_long_is_ended(app: App, database: str) -> None:
    slow(database)
    with pytest.raises(StoreUnavailable, match="nothing of it was stored"):
        app.queue("q").offer("a", 1)
    assert app.queue("q").read("a") is None


def test_so_it_is_for_code_that_awaits(app: App, database: str) -> None:
    slow(database)

    async def story() -> None:
        async with tarry.connect_async(database, settings=SHORT) as behind:
            with pytest.raises(StoreUnavailable, match="nothing of it was stored"):
                await behind.queue("q").offer("a", 1)

    asyncio.run(story())
    assert app.queue("q").read("a") is None


def test_bulk_loads_purges_and_deletions_may_take_longer(app: App, database: str) -> None:
    slow(database)
    queue = app.queue("q")
    assert set(queue.offer_many([Message(payload=1) for _ in range(2_500)])) == {Outcome.CREATED}
    assert queue.purge(PURGE_CONFIRMATION) == 2_500
    app.queues.delete("q", force=True)


def test_none_leaves_what_the_role_has_set(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("alter role current_user set statement_timeout = '7s'")
    try:
        for settings, expected in ((StoreSettings(statement_for=None), "7s"), (StoreSettings(), "1min")):
            with tarry.connect(database, settings=settings) as app, app.store._pool.connection() as conn:  # type: ignore[attr-defined]
                row = conn.execute("show statement_timeout").fetchone()
                assert row == (expected,)
    finally:
        with psycopg.connect(database, autocommit=True) as conn:
            conn.execute("alter role current_user reset statement_timeout")
