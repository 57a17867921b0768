"""Where the live messages of a queue begin: why waiting, counting and sweeping do not slow down beside dead rows.

They read a queue from its head, where the entries of dead rows are that no vacuum has removed. Each of their statements
returns where the live messages of each priority begin, and the next one starts there if that is much cheaper: a `Cursor`
decides it, as for polls. Nothing live is left out but what was put in front of that since, back-dated or by a late commit. It
is found by the next scan from the head, after at most 20 times as long as that takes.
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
    """Statements differ in cost, so each has a memory of its own."""

    verb: str
    queue: str
    type: str | None = None


class LiveHeads:
    """Of the queues whose head was slow. Concurrent threads cost at most an extra scan from the head."""

    def __init__(self, timer: Callable[[], float] = time.monotonic) -> None:
        self.timer = timer
        self._cursors: dict[ScanKey, Cursor] = {}

    def has(self, key: ScanKey) -> bool:
        return key in self._cursors

    def scan(self, key: ScanKey, make: Callable[[Sequence[ScanPosition]], Statement[R]], *, own: bool = True) -> Op[R]:
        """Run a statement that includes `messages/_live_heads`, from the head or from where the live messages begin. On a
        caller's connection (not `own`), whose snapshot may be old, it starts from the head, and is not remembered."""
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
    """Scans begin after a position: just before these messages."""
    return tuple([ScanPosition(due_at, version - 1) for due_at, version in zip(due_ats, versions, strict=True)])
