"""A statement was done, and the connection broke before anybody heard of it: it is said again, and does nothing more."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

import tarry
from tarry.storage.postgres import sync
from tarry.storage.postgres.statement import Op


class LosesAnswers:
    """Every op of the store, driven for real; the answer of the one that is named goes missing once."""

    def __init__(self) -> None:
        self.lost: list[str] = []
        self._real = sync.drive

    def __call__(self, conn: psycopg.Connection[Any], op: Op[Any], *, guest: bool = False) -> Any:
        answer = self._real(conn, self._watched(op), guest=guest)
        if self.lost == ["redrive"]:
            self.lost.append("for good")
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return answer

    def _watched(self, op: Op[Any]) -> Op[Any]:
        rows: Any = None
        while True:
            try:
                step = op.send(rows)
            except StopIteration as stop:
                return stop.value
            rows = yield step
            if "'redriven'" in step.sql:
                self.lost.append("redrive")


def test_a_redrive_of_the_oldest_moves_no_more_of_them_when_its_answer_was_lost(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    losing = LosesAnswers()
    with tarry.connect(database) as app:
        orders = app.queue("orders")
        for n in range(6):
            orders.offer(f"k{n}", n)
        for delivery in orders.try_poll_many(6):
            delivery.bury("x")
        monkeypatch.setattr(sync, "drive", losing)
        orders.dead_letters.redrive(limit=2)
        assert losing.lost == ["redrive", "for good", "redrive"], "its answer was lost, and it was said again"
        assert sorted(letter.key for letter in orders.dead_letters.list()) == ["k2", "k3", "k4", "k5"]
