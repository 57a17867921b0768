"""A message that has used its last attempt, met by a poll that is cut off before it buries the message."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest

import tarry
from tarry import QueueSettings
from tarry.storage.postgres._sync import store as sync
from tarry.storage.postgres.statement import Op
from tarry.testing import MutableClock
from tests.kit.clocks import START

MINUTE = timedelta(minutes=1)


class CutOff(Exception):
    """The process ends here."""


class CutsOffBurials:
    """Drives every op for real, up to the statement that would bury."""

    def __init__(self) -> None:
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
            if "insert into tarry.dead_letter" in step.sql:
                raise CutOff
            rows = yield step


@pytest.mark.parametrize("type", [None, "order"])
@pytest.mark.parametrize("by_sweeper", [False, True])
def test_a_dead_letter_counts_the_deliveries_and_nothing_else(
    database: str, monkeypatch: pytest.MonkeyPatch, type: str | None, *, by_sweeper: bool
) -> None:
    clock = MutableClock(START)
    with tarry.connect(database, clock=clock) as app:
        app.queues.create("q", QueueSettings(max_attempts=1))
        queue = app.queue("q")
        queue.offer("a", 1, type=type)
        assert queue.try_poll(type=type) is not None
        for _ in range(3):
            clock.advance(MINUTE)
            with monkeypatch.context() as patched:
                patched.setattr(sync, "drive", CutsOffBurials())
                with pytest.raises(CutOff):
                    queue.try_poll(type=type)
        clock.advance(MINUTE)
        if by_sweeper:
            app.store.run(app.store.maintenance.sweep("q"))
        else:
            assert queue.try_poll(type=type) is None
        (letter,) = queue.dead_letters.list()
        assert letter.attempt == 1
        events = [(event.kind.value, event.attempt) for event in app.store.run(app.store.journal.timeline("q", "a"))]
        assert events == [("offered", 0), ("leased", 1), ("expired", 1), ("buried", 1)]
