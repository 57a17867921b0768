"""A server that crashes forgets what was not on disk, and assigns its numbers again: no reader of the tail may miss that."""

from __future__ import annotations

import psycopg
import pytest

import tarry
from tarry.core.journal.events import EventKind
from tests.storage.postgres.fallible import fallible_server

pytestmark = pytest.mark.chaos

ROUNDS = 3
MESSAGES = 10


def tailed(app: tarry.App, position: str) -> tuple[list[int], str]:
    ids: list[int] = []
    while True:
        page = app.store.run(app.store.journal.tail(position))
        assert page.gap is None
        ids += [event.id for _, event in page.events]
        position = page.position
        if page.complete:
            return ids, position


def test_tailed_events_survive_a_crash_and_later_ones_are_tailed() -> None:
    with fallible_server() as server:
        with psycopg.connect(server.dsn, autocommit=True) as conn:
            conn.execute("alter system set wal_writer_delay = '10s'")  # what is not waited for stays in memory
            conn.execute("select pg_reload_conf()")
        with tarry.connect(server.dsn) as app:
            app.queues.create("q")
            position, seen = app.store.run(app.store.journal.tail(None)).position, list[int]()
        for round in range(ROUNDS):
            with tarry.connect(server.dsn) as app:
                queue = app.queue("q")
                queue.offer_many([tarry.Message(key=f"{round}-{n}", payload=1) for n in range(MESSAGES)])
                for _ in range(MESSAGES):
                    assert queue.try_poll() is not None  # each commits without waiting for the disk
                ids, position = tailed(app, position)
                seen += ids
                # No reader gets these before the crash, which may undo them.
                for _ in range(2):
                    queue.try_poll()
                server.restart()
            with tarry.connect(server.dsn) as app, psycopg.connect(server.dsn) as conn:
                kept = {row[0] for row in conn.execute("select id from tarry.event").fetchall()}
                assert set(seen) <= kept, "a reader got an event that does not exist any more"
                app.queue("q").purge("Yes, please, I know what I'm doing!")
                ids, position = tailed(app, position)
                seen += ids
                everything = "select id from tarry.event where kind <> %s"
                assert sorted(seen) == sorted(
                    row[0] for row in conn.execute(everything, (EventKind.QUEUE_CREATED.value,)).fetchall()
                )
