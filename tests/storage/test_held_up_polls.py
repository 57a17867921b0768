"""A blocking poll whose message somebody else has locked waits for it, and does not ask a thousand times a second."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest

from tarry.app import App
from tarry.core.settings import StoreSettings
from tarry.handles.waiting import nap_s
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


@pytest.mark.parametrize(
    ("due_in", "nap"),
    [
        (None, 0.5),
        (timedelta(seconds=3), 0.5),
        (timedelta(milliseconds=200), 0.2),
        (timedelta(microseconds=50), 0.00005),
        (timedelta(0), 0.01),
    ],
)
def test_a_nap_lasts_until_something_is_due_or_until_it_may_be_free(due_in: timedelta | None, nap: float) -> None:
    assert nap_s(due_in, SCAN, None) == nap
    assert nap_s(due_in, SCAN, 10.0) == nap
    assert nap_s(due_in, SCAN, 0.00001) == 0.00001
    assert nap_s(due_in, SCAN, -1.0) == 0.0


def test_a_scan_that_is_shorter_than_the_pause_is_not_made_longer() -> None:
    assert nap_s(timedelta(0), timedelta(milliseconds=2), None) == 0.002
