"""A queue is deleted between the steps of a large offer."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

import tarry
from tarry import Message, Outcome
from tarry.core.errors import InvalidState
from tarry.storage.postgres._sync import store as sync
from tarry.storage.postgres.statement import Op
from tests.kit.sleepers import until


def deletion_waits(dsn: str) -> bool:
    with psycopg.connect(dsn) as conn:
        return (
            conn.execute("select from pg_locks where not granted and relation = 'tarry.message'::regclass").fetchone()
            is not None
        )


class Meanwhile:
    """Drives every op for real, and does something else between its first and its second statement, once."""

    def __init__(self, first: str, act: Callable[[], None]) -> None:
        self._first = first
        self._act = act
        self._done = False
        self._real = sync.drive

    def __call__(self, conn: psycopg.Connection[Any], op: Op[Any], **options: Any) -> Any:
        return self._real(conn, self._watched(op), **options)

    def _watched(self, op: Op[Any]) -> Op[Any]:
        rows: Any = None
        while True:
            try:
                step = op.send(rows)
            except StopIteration as stop:
                return stop.value
            rows = yield step
            if self._first in step.sql and not self._done:
                self._done = True
                self._act()


@pytest.mark.parametrize("kind", ["copied", "bound", "in the caller's transaction"])
def test_no_message_of_a_large_offer_is_accepted_into_a_queue_that_is_being_deleted(
    database: str, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    n = 6_000 if kind == "bound" else 2_500
    batch = [Message(key=f"k{i}" if kind == "bound" else None, payload=i) for i in range(n)]
    with tarry.connect(database) as app, tarry.connect(database) as other, psycopg.connect(database) as caller:
        app.queues.create("orders")

        with ThreadPoolExecutor(max_workers=1) as thread:
            deletions: list[Future[None]] = []

            def delete_meanwhile() -> None:
                deletions.append(thread.submit(other.queues.delete, "orders"))
                until(lambda: deletions[0].done() or deletion_waits(database), "the deletion neither waits nor ends")

            monkeypatch.setattr(
                sync,
                "drive",
                Meanwhile("array(select nextval('tarry.version_seq') from generate_series(1, %(n)s", delete_meanwhile),
            )
            with caller:
                conn = caller if kind.startswith("in ") else None
                assert app.queue("orders").offer_many(batch, conn=conn) == [Outcome.CREATED] * n
            with pytest.raises(InvalidState, match="still has messages"):
                deletions[0].result()
        monkeypatch.undo()
        assert app.queues.counts("orders").ready.n == n
