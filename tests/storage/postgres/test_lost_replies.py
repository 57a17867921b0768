"""A statement was done, and the connection broke before its reply: the retry does nothing more."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest

import tarry
from tarry.storage.postgres._sync import store as sync
from tarry.storage.postgres.statement import Op


class LosesReplies:
    """Every op of the store, driven for real; the answer to the one with this text in its statements goes missing once."""

    def __init__(self, text: str) -> None:
        self.lost: list[str] = []
        self._text = text
        self._real = sync.drive

    def __call__(self, conn: psycopg.Connection[Any], op: Op[Any], *, external: bool = False) -> Any:
        result = self._real(conn, self._watched(op), external=external)
        if self.lost == ["done"]:
            self.lost.append("for good")
            if conn.info.transaction_status is psycopg.pq.TransactionStatus.INTRANS:
                conn.execute("commit")
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return result

    def _watched(self, op: Op[Any]) -> Op[Any]:
        rows: Any = None
        while True:
            try:
                step = op.send(rows)
            except StopIteration as stop:
                return stop.value
            rows = yield step
            if self._text in step.sql:
                self.lost.append("done")


def test_a_redrive_of_the_oldest_moves_no_more_of_them_after_a_lost_reply(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    losing = LosesReplies("'redriven'")
    with tarry.connect(database) as app:
        orders = app.queue("orders")
        for n in range(6):
            orders.offer(f"k{n}", n)
        for delivery in orders.try_poll_many(6):
            delivery.bury("x")
        monkeypatch.setattr(sync, "drive", losing)
        orders.dead_letters.redrive(limit=2)
        assert losing.lost == ["done", "for good", "done"], "its reply was lost, and it was retried"
        assert sorted(letter.key for letter in orders.dead_letters.list()) == ["k2", "k3", "k4", "k5"]


@pytest.mark.parametrize(
    ("n", "text"), [(1, "insert into tarry.message"), (3, "insert into tarry.message"), (3_000, "copy tarry.message")]
)
def test_messages_without_a_key_are_stored_once_and_created_after_a_lost_reply(
    database: str, monkeypatch: pytest.MonkeyPatch, n: int, text: str
) -> None:
    """Their keys are new, so nothing is looked for: the second time it is there all the same."""
    losing = LosesReplies(text)
    with tarry.connect(database) as app:
        orders = app.queue("orders")
        orders.offer("first", 0, after=timedelta(hours=1))
        monkeypatch.setattr(sync, "drive", losing)
        batch = [tarry.Message(payload=i) for i in range(n)]
        outcomes = [orders.offer(None, 0)] if n == 1 else orders.offer_many(batch)
        assert losing.lost[:2] == ["done", "for good"]
        assert outcomes == [tarry.Outcome.CREATED] * n
        monkeypatch.undo()
        assert app.queues.counts("orders").ready.n == n
        assert {delivery.attempt for delivery in orders.try_poll_many(n)} == {1}
