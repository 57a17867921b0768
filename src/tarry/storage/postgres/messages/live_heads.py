"""Positions of the first live messages of a queue: keep waits, counts and sweeps fast despite dead rows.

These statements read a queue from its head, where index entries of dead rows accumulate until a vacuum removes them. Each
statement returns the position of the first live message per priority, and the next one starts there if that is much faster,
as decided by a `Cursor` like that of polls. It can miss only messages that were added before this position since then:
back-dated, or committed late. The next scan from the head finds them, after at most 20 times its own duration.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple, TypeVar

from tarry.storage.postgres.messages.cursor import MARGIN_S, Cursor
from tarry.storage.postgres.messages.statements import HEAD, ScanPosition
from tarry.storage.postgres.statement import Op, Row, Statement

R = TypeVar("R")


class ScanKey(NamedTuple):
    """Statements differ in cost, so each has its own cursor."""

    verb: str
    queue: str
    type: str | None = None


class LiveHeads:
    """Cursors of the queues with a slow head. Concurrent threads cause at most an extra scan from the head."""

    def __init__(self, timer: Callable[[], float] = time.monotonic) -> None:
        self.timer = timer
        self._cursors: dict[ScanKey, Cursor] = {}

    def has(self, key: ScanKey) -> bool:
        return key in self._cursors

    def scan(self, key: ScanKey, make: Callable[[Sequence[ScanPosition]], Statement[R]], *, own: bool = True) -> Op[R]:
        """Run a statement that includes `messages/_live_heads`, from the head or from the first live messages. On a caller's
        connection (not `own`), whose snapshot may be old, it starts from the head and its result is not remembered."""
        started_s, cursor = self.timer(), self._cursors.get(key) if own else None
        start = HEAD if cursor is None else cursor.scan(started_s)
        statement = make(start)
        rows: list[Row] = yield statement
        took_s = self.timer() - started_s
        if own and rows and rows[0].live_due_ats is not None:
            if start is HEAD and took_s <= MARGIN_S:
                self._cursors.pop(key, None)
            else:
                cursor = cursor or self._cursors.setdefault(key, Cursor())
                cursor.measure(start, took_s, started_s + took_s, 0)
                cursor.positions = _before(rows[0].live_due_ats, rows[0].live_versions)
        return statement.decode(rows)


def _before(due_ats: Sequence[datetime], versions: Sequence[int]) -> tuple[ScanPosition, ...]:
    """Positions just before these messages: scans start after a position."""
    return tuple([ScanPosition(due_at, version - 1) for due_at, version in zip(due_ats, versions, strict=True)])
