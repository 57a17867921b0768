"""Where a consumer looks next. Why a queue does not decay when something else in the database holds an old snapshot.

Dead rows that cannot be removed, or tens of thousands of leased ones, pile up at the head of the order, and a poll from
the head walks over all of them. So a consumer remembers the last message it leased per priority. It looks from the head
for as long as that is cheap; when it is not, it looks from its cursor, and from the head only on a budget of 5 % of the
time. The head is where expired leases, back-dated offers and late commits are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from tarry.storage.postgres.statements import LeasedRow, Position

HEAD: tuple[Position, ...] = (Position(),) * 10
_MARGIN_S = 0.002
_REST_S = 0.2
_SHARE = 20
_TELLING = 10
"""From this many rows on, a look tells what one row takes."""
_CHECK_AFTER = 50
"""As many slow looks from the head are followed by one from the cursor: what was learned at a bad moment must not last."""
_MEMORY = 4
"""A cost is the least of this many: one slow moment of a busy machine is not a slow head."""


class _Looks:
    """What the last few looks from one place took, and how much they gave."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, int]] = deque(maxlen=_MEMORY)

    def add(self, cost_s: float, rows: int) -> None:
        self._looks.append((cost_s, rows))

    @property
    def enough(self) -> bool:
        return len(self._looks) == _MEMORY

    def least_s(self, row_s: float = 0.0) -> float:
        """The quickest, without what its rows took: a batch takes its time from wherever it comes."""
        return min(cost_s - rows * row_s for cost_s, rows in self._looks)


class Cursor:
    """One per queue (and type) of a consumer. Racing threads may at worst cost an extra look from the head."""

    def __init__(self) -> None:
        self._positions: list[Position] = list(HEAD)
        self._from_head = _Looks()
        self._from_cursor = _Looks()
        self._row_s: float | None = None
        self._unchecked = 0
        self.head_due = 0.0

    def scan(self, now_s: float) -> Sequence[Position]:
        """From where to look now."""
        if self.head_is_dear:
            return HEAD if now_s >= self.head_due else self.positions
        # Slow, but is it the head? Only a look from the cursor can tell.
        slow = self._from_head.enough and self._from_head.least_s() > _MARGIN_S
        unsure = not self._from_cursor.enough or self._unchecked >= _CHECK_AFTER
        return self.positions if slow and unsure else HEAD

    @property
    def positions(self) -> Sequence[Position]:
        return tuple(self._positions)

    @property
    def head_is_dear(self) -> bool:
        """Every recent look from the head took longer than the quickest from the cursor, by more than the margin."""
        if not (self._from_head.enough and self._from_cursor.enough):
            return False
        row_s = self._row_s or 0.0
        return self._from_head.least_s(row_s) > max(0.0, self._from_cursor.least_s(row_s)) + _MARGIN_S

    def learn(self, scanned: Sequence[Position], cost_s: float, now_s: float, rows: Sequence[LeasedRow]) -> None:
        if len(rows) >= _TELLING:
            self._row_s = min(cost_s / len(rows), self._row_s or cost_s)
        if scanned is HEAD:
            self._unchecked += 1
            self._from_head.add(cost_s, len(rows))
            self.head_due = now_s + max(_REST_S, _SHARE * cost_s)
        else:
            self._unchecked = 0
            self._from_cursor.add(cost_s, len(rows))
        for priority in {row.priority for row in rows}:
            last = max((row.due_at, row.version) for row in rows if row.priority == priority)
            due_at, version = self._positions[priority]
            if due_at is None or (due_at, version) < last:
                self._positions[priority] = Position(*last)
