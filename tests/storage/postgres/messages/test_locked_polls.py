"""A blocking poll whose message somebody else has locked waits for it, and does not ask a thousand times a second."""

from __future__ import annotations

from datetime import timedelta

import psycopg

from tarry.app import App
from tarry.core.settings import StoreSettings
from tarry.storage.postgres.sync import PostgresStore

SCAN = timedelta(milliseconds=500)


class Counting(PostgresStore):
    leases = 0

    def lease(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        if kwargs.get("conn") is None:
            self.leases += 1
        return super().lease(*args, **kwargs)


def test_a_message_in_an_open_transaction_is_not_asked_for_without_pause(database: str) -> None:
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
