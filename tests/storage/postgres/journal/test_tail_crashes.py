"""A server that crashes forgets what was not on disk, and gives its numbers out again: nobody who follows may miss that."""

from __future__ import annotations

import psycopg
import pytest

import tarry
from tarry.core.events import EventKind
from tests.storage.fallible import fallible_server

pytestmark = pytest.mark.chaos

ROUNDS = 3
MESSAGES = 10


def told(app: tarry.App, position: str) -> tuple[list[int], str]:
    ids: list[int] = []
    while True:
        page = app.store.follow(position)
        assert page.gap is None
        ids += [event.id for _, event in page.events]
        position = page.position
        if page.complete:
            return ids, position


def test_what_was_told_survives_a_crash_and_what_comes_after_it_is_told() -> None:
    with fallible_server() as server:
        with psycopg.connect(server.dsn, autocommit=True) as conn:
            conn.execute("alter system set wal_writer_delay = '10s'")  # what is not waited for stays in memory
            conn.execute("select pg_reload_conf()")
        with tarry.connect(server.dsn) as app:
            app.queues.create("q")
            position, seen = app.store.follow(None).position, list[int]()
        for round in range(ROUNDS):
            with tarry.connect(server.dsn) as app:
                queue = app.queue("q")
                queue.offer_many([tarry.Message(key=f"{round}-{n}", payload=1) for n in range(MESSAGES)])
                for _ in range(MESSAGES):
                    assert queue.try_poll() is not None  # each commits without waiting for the disk
                ids, position = told(app, position)
                seen += ids
                # Nobody is told of these before the crash, which may take them back.
                for _ in range(2):
                    queue.try_poll()
                server.restart()
            with tarry.connect(server.dsn) as app, psycopg.connect(server.dsn) as conn:
                kept = {row[0] for row in conn.execute("select id from tarry.event").fetchall()}
                assert set(seen) <= kept, "somebody was told of what is not there any more"
                app.queue("q").drop_all("Yes, please, I know what I'm doing!")
                ids, position = told(app, position)
                seen += ids
                everything = "select id from tarry.event where kind <> %s"
                assert sorted(seen) == sorted(
                    row[0] for row in conn.execute(everything, (EventKind.QUEUE_CREATED.value,)).fetchall()
                )
