"""The scan cursor of a consumer: why a queue does not slow down when another transaction holds an old snapshot.

Dead rows that cannot be removed, or tens of thousands of leased ones, pile up at the head of the order, and a poll from
the head walks over all of them. So a consumer remembers the last message it leased per priority. It scans from the head
while that is cheap; when it is not, it scans from its cursor, and from the head only on a budget of 5 % of the time. The head
is where expired leases, back-dated offers and late commits are.
"""

from collections import deque
from collections.abc import Sequence

from tarry.storage.postgres.messages.statements import HEAD, LeasedRow, ScanPosition

MARGIN_S = 0.002
_REST_S = 0.2
_SHARE = 20
_ROWS_FOR_COST = 10
"""Scans with at least this many rows measure the cost of one row."""
_CHECK_AFTER = 50
"""Slow scans from the head until one from the cursor is measured again, as that may have met a bad moment."""
_MEMORY = 4
"""A cost is the minimum of this many scans: one slow moment of a busy machine is not a slow head."""


class _Looks:
    """The cost and row counts of the last scans from one position."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, int]] = deque(maxlen=_MEMORY)

    def add(self, cost_s: float, rows: int) -> None:
        self._looks.append((cost_s, rows))

    @property
    def enough(self) -> bool:
        return len(self._looks) == _MEMORY

    def least_s(self, row_s: float = 0.0) -> float:
        """The fastest scan, without the cost of its rows."""
        return min(cost_s - rows * row_s for cost_s, rows in self._looks)


class Cursor:
    """One per queue (and type) of a consumer. Concurrent threads cost at most an extra scan from the head."""

    def __init__(self) -> None:
        self.positions: Sequence[ScanPosition] = list(HEAD)
        self._from_head = _Looks()
        self._from_cursor = _Looks()
        self._row_s: float | None = None
        self._unchecked = 0
        self._last_from_head_s = 0.0
        self.head_due = 0.0

    def scan(self, now_s: float) -> Sequence[ScanPosition]:
        """Where the next scan starts."""
        if self._last_from_head_s <= MARGIN_S:
            return HEAD  # so the fastest of the last scans was not slow
        if self.head_is_expensive:
            return HEAD if now_s >= self.head_due else self.positions
        # Slow, but perhaps not because of the head: compare with a scan from the cursor.
        slow = self._from_head.enough and self._from_head.least_s() > MARGIN_S
        unsure = not self._from_cursor.enough or self._unchecked >= _CHECK_AFTER
        return self.positions if slow and unsure else HEAD

    @property
    def head_is_expensive(self) -> bool:
        """Every recent scan from the head took longer than the fastest from the cursor, by more than the margin."""
        if not (self._from_head.enough and self._from_cursor.enough):
            return False
        row_s = self._row_s or 0.0
        return self._from_head.least_s(row_s) > max(0.0, self._from_cursor.least_s(row_s)) + MARGIN_S

    def learn(self, scanned: Sequence[ScanPosition], cost_s: float, now_s: float, rows: Sequence[LeasedRow]) -> None:
        """`rows`: those of a priority in their order."""
        self.measure(scanned, cost_s, now_s, len(rows))
        if not rows:
            return
        positions = list(self.positions)
        for priority, row in {row.priority: row for row in rows}.items():  # the last of each
            due_at, version = positions[priority]
            if due_at is None or (due_at, version) < (row.due_at, row.version):
                positions[priority] = ScanPosition(row.due_at, row.version)
        self.positions = positions

    def measure(self, scanned: Sequence[ScanPosition], cost_s: float, now_s: float, rows: int) -> None:
        if rows >= _ROWS_FOR_COST:
            self._row_s = min(cost_s / rows, self._row_s or cost_s)
        if scanned is HEAD:
            self._unchecked += 1
            self._last_from_head_s = cost_s
            self._from_head.add(cost_s, rows)
            self.head_due = now_s + max(_REST_S, _SHARE * cost_s)
        else:
            self._unchecked = 0
            self._from_cursor.add(cost_s, rows)
