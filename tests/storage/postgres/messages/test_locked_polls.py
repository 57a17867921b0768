"""A blocking poll whose message another transaction has locked waits for it, without a thousand queries a second."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg

from tarry.app import App
from tarry.core.settings import StoreSettings
from tarry.storage.postgres._sync.store import PostgresStore
from tests.kit.calls import call_of, replace_call

SCAN = timedelta(milliseconds=500)


class Counting(PostgresStore):
    leases = 0

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        poll = call_of(self, "messages.poll")

        def counted(*args: Any, conn: Any = None) -> Any:
            self.leases += conn is None
            return poll(*args, conn=conn)

        replace_call(self, "messages.poll", counted)


def test_a_message_in_an_open_transaction_is_not_polled_without_pause(database: str) -> None:
    store = Counting(database, settings=StoreSettings(scan_every=SCAN))
    with App(store, dsn=database) as app, psycopg.connect(database) as conn:
        queue = app.queue("held-up")
        queue.offer("k", 1)
        assert queue.try_poll(conn=conn) is not None
        store.leases = 0
        assert queue.poll(timedelta(seconds=1)) is None
        assert store.leases <= 101
        conn.rollback()
        assert queue.poll(timedelta(seconds=5)) is not None
