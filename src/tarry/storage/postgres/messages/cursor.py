"""A consumer's scan cursor: keeps polls fast while another transaction holds an old snapshot.

Dead rows that cannot be removed, or tens of thousands of leased rows, accumulate at the head of the order, and a poll from
the head scans all of them. So a consumer remembers the last message it leased per priority. It scans from the head while that
is fast, otherwise from its cursor, and from the head for at most 5 % of the time: expired leases, back-dated offers and late
commits are at the head.
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
"""Slow scans from the head before a scan from the cursor is measured again, since one measurement may be an outlier."""
_MEMORY = 4
"""A cost is the minimum of this many scans, so that a busy machine is not taken for a slow head."""


class _Scans(deque[tuple[float, int]]):
    """The cost and row counts of the last scans from one position."""

    @property
    def enough(self) -> bool:
        return len(self) == _MEMORY

    def least_s(self, row_s: float = 0.0) -> float:
        """The fastest scan, without the cost of its rows."""
        return min(cost_s - rows * row_s for cost_s, rows in self)


class Cursor:
    """A cursor per queue (and type). Concurrent threads cause at most an extra scan from the head."""

    def __init__(self) -> None:
        self.positions: Sequence[ScanPosition] = list(HEAD)
        self._from_head = _Scans(maxlen=_MEMORY)
        self._from_cursor = _Scans(maxlen=_MEMORY)
        self._row_s: float | None = None
        self._unchecked = 0
        self._last_from_head_s = 0.0
        self.head_due = 0.0

    def scan(self, now_s: float) -> Sequence[ScanPosition]:
        """Where the next scan starts."""
        if self._last_from_head_s <= MARGIN_S:
            return HEAD
        if self.head_is_expensive:
            return HEAD if now_s >= self.head_due else self.positions
        # Perhaps not slow because of the head: compare with a scan from the cursor.
        slow = self._from_head.enough and self._from_head.least_s() > MARGIN_S
        unsure = not self._from_cursor.enough or self._unchecked >= _CHECK_AFTER
        return self.positions if slow and unsure else HEAD

    @property
    def head_is_expensive(self) -> bool:
        """Whether every recent scan from the head exceeded the fastest scan from the cursor by more than the margin."""
        if not (self._from_head.enough and self._from_cursor.enough):
            return False
        row_s = self._row_s or 0.0
        return self._from_head.least_s(row_s) > max(0.0, self._from_cursor.least_s(row_s)) + MARGIN_S

    def learn(self, scanned: Sequence[ScanPosition], cost_s: float, now_s: float, rows: Sequence[LeasedRow]) -> None:
        """Record a scan. The rows of each priority are in delivery order."""
        self.measure(scanned, cost_s, now_s, len(rows))
        if not rows:
            return
        positions = list(self.positions)
        for priority, row in {row.priority: row for row in rows}.items():  # the last row of each priority
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
            self._from_head.append((cost_s, rows))
            self.head_due = now_s + max(_REST_S, _SHARE * cost_s)
        else:
            self._unchecked = 0
            self._from_cursor.append((cost_s, rows))
