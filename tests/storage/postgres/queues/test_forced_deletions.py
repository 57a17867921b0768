"""A queue with messages is deleted by force: at once for its clients, in batches for the database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

import tarry
from tarry import Message, Outcome
from tarry.app import App
from tarry.core.errors import UnknownQueue
from tarry.services.sweeper import Sweeper, SweepReport
from tarry.storage.postgres._sync import store as sync
from tarry.storage.postgres.queues import statements
from tarry.storage.postgres.statement import Op
from tarry.storage.postgres.store import AsyncPostgresStore

N = 35


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements, "LEFTOVERS", 10)


@pytest.fixture
def app(database: str) -> Any:
    with tarry.connect(database) as app:
        app.queue("big").offer_many([Message(key=f"k{i}", payload=i) for i in range(N)])
        for delivery in app.queue("big").try_poll_many(12):
            delivery.bury()
        app.queues.create("other")
        yield app


def after_each_batch(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    real = sync.drive

    def drive(conn: psycopg.Connection[Any], op: Op[Any], **options: Any) -> Any:
        def watched() -> Op[Any]:
            rows: Any = None
            while True:
                try:
                    step = op.send(rows)
                except StopIteration as stop:
                    return stop.value
                rows = yield step
                if "has_leftovers and" in step.sql:
                    act()

        return real(conn, watched(), **options)

    monkeypatch.setattr(sync, "drive", drive)


def left(dsn: str) -> tuple[int, int, int]:
    """Messages, dead letters, and queues that still have some of either."""
    with psycopg.connect(dsn) as conn:
        row = conn.execute(
            "select (select count(*) from tarry.message), (select count(*) from tarry.dead_letter), "
            "(select count(*) from tarry.queue where has_leftovers)"
        ).fetchone()
    assert row is not None
    return row


def events(dsn: str) -> dict[str, int]:
    with psycopg.connect(dsn) as conn:
        return dict(
            conn.execute(
                "select kind::text, count(*) from tarry.event "
                "where kind in ('dropped', 'discarded', 'queue_deleted') group by 1"
            ).fetchall()
        )


def sweep(dsn: str) -> SweepReport:
    async def run() -> SweepReport:
        store = AsyncPostgresStore(dsn)
        await store.open()
        try:
            return await Sweeper(store, holder="test").run_once()
        finally:
            await store.close()

    return asyncio.run(run())


def test_writers_of_other_queues_do_not_wait_for_the_batches(
    app: App, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, Outcome]] = []
    with tarry.connect(database) as other:

        def offer() -> None:
            seen.append((left(database)[0], other.queue("other").offer(None, 0)))

        after_each_batch(monkeypatch, offer)
        app.queues.delete("big", force=True)
    assert [outcome for _, outcome in seen] == [Outcome.CREATED] * 4, "three batches, and one that finds nothing"
    assert seen[0][0] > 0, "the first offer came while messages of the deleted queue were left"
    assert left(database) == (4, 0, 0)
    assert events(database) == {"dropped": N - 12, "discarded": 12, "queue_deleted": 1}


def test_the_sweeper_goes_on_where_the_deleting_process_ended(
    app: App, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        after_each_batch(patch, end)
        with pytest.raises(KeyboardInterrupt):
            app.queues.delete("big", force=True)
    messages, dead, queues = left(database)
    assert (messages, dead, queues) == (13, 2, 1)
    with pytest.raises(UnknownQueue):
        app.queues.get("big")
    app.queues.create("big")
    assert app.queue("big").try_poll() is None, "a new queue of the name has none of them"
    assert sweep(database).removed == 15
    assert left(database) == (0, 0, 0)
    assert events(database) == {"dropped": N - 12, "discarded": 12, "queue_deleted": 1}


def test_with_the_callers_connection_everything_belongs_to_its_transaction(app: App, database: str) -> None:
    with psycopg.connect(database) as conn:
        app.queues.delete("big", force=True, conn=conn)
        conn.rollback()
    assert left(database) == (N - 12, 12, 0)
    with psycopg.connect(database) as conn:
        app.queues.delete("big", force=True, conn=conn)
    assert left(database)[:2] == (0, 0)
