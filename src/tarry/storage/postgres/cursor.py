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
_MEMORY = 4
"""A cost is the least of this many: one slow moment of a busy machine is not a slow head."""


class Cursor:
    """One per queue (and type) of a consumer. Racing threads may at worst cost an extra look from the head."""

    def __init__(self) -> None:
        self._positions: list[Position] = list(HEAD)
        self._head_costs: deque[float] = deque(maxlen=_MEMORY)
        self._cursor_costs: deque[float] = deque(maxlen=_MEMORY)
        self.head_due = 0.0

    def scan(self, now_s: float) -> Sequence[Position]:
        """From where to look now."""
        if not self.head_is_dear or now_s >= self.head_due:
            # Known to be cheap on too little evidence: look from the cursor once in a while to have something to compare.
            if len(self._head_costs) < _MEMORY or min(self._head_costs) < _MARGIN_S or self.head_is_dear:
                return HEAD
            return self.positions if len(self._cursor_costs) < _MEMORY else HEAD
        return self.positions

    @property
    def positions(self) -> Sequence[Position]:
        return tuple(self._positions)

    @property
    def head_is_dear(self) -> bool:
        """Every recent look from the head took longer than the quickest from the cursor, by more than the margin."""
        full = len(self._head_costs) == _MEMORY == len(self._cursor_costs)
        return full and min(self._head_costs) > min(self._cursor_costs) + _MARGIN_S

    def learn(self, scanned: Sequence[Position], cost_s: float, now_s: float, rows: Sequence[LeasedRow]) -> None:
        if scanned is HEAD:
            self._head_costs.append(cost_s)
            self.head_due = now_s + max(_REST_S, _SHARE * cost_s)
        else:
            self._cursor_costs.append(cost_s)
        for priority in {row.priority for row in rows}:
            last = max((row.due_at, row.version) for row in rows if row.priority == priority)
            due_at, version = self._positions[priority]
            if due_at is None or (due_at, version) < last:
                self._positions[priority] = Position(*last)
