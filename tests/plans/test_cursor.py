"""Where polls start: from the head while that is fast, otherwise from the cursor, and from the head within a budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from tarry.core.messages.model import Lease, PollOptions
from tarry.storage.postgres.messages import operations as ops
from tarry.storage.postgres.messages.cursor import HEAD, Cursor
from tarry.storage.postgres.messages.lease_tokens import new_poll_number
from tarry.storage.postgres.messages.statements import LeasedRow, ScanPosition, poll
from tarry.storage.postgres.statement import Statement

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
EXPENSIVE_S = 0.05
FAST_S = 0.0005
NO_ROW = LeasedRow._make([None] * len(LeasedRow._fields))
_FROM_HEAD = poll("q", 1, HEAD, PollOptions(), number=new_poll_number(), durable=False, now=None).params


def row(version: int, *, priority: int = 0, due_at: datetime = NOON) -> LeasedRow:
    return LeasedRow(
        version.to_bytes(6), f"k{version}", b"1", version, 1, priority, due_at, NOON, NOON, None, None, None, False
    )


@dataclass
class Database:
    """Executes lease statements. A scan from the head costs what the test sets; time passes only by scans."""

    head_s: float
    cursor_s: float = FAST_S
    row_s: float = 0.0
    now_s: float = 100.0
    head_rows: list[LeasedRow] = field(default_factory=list)
    cursor_rows: list[LeasedRow] = field(default_factory=list)
    scans: list[tuple[float, bool]] = field(default_factory=list)
    """When, and whether from the head."""

    def rows_for(self, statement: Statement[list[LeasedRow]]) -> list[LeasedRow]:
        from_head = statement.params["after_version"].data == _FROM_HEAD["after_version"].data
        rows = (self.head_rows if from_head else self.cursor_rows)[: statement.params["n"]]
        self.now_s += (self.head_s if from_head else self.cursor_s) + self.row_s * len(rows)
        self.scans.append((self.now_s, from_head))
        return rows

    def poll(self, cursor: Cursor, n: int = 10) -> list[Lease[bytes]]:
        op = ops.poll("q", n, lambda data, _: data, PollOptions(), cursor, lambda: self.now_s, None, durable=False)
        try:
            step = next(op)
            while True:
                assert isinstance(step, Statement)
                step = op.send(self.rows_for(step) or [NO_ROW])
        except StopIteration as stop:
            return stop.value

    @property
    def heads(self) -> list[float]:
        return [at for at, from_head in self.scans if from_head]


def experienced(database: Database) -> Cursor:
    """A cursor that has leased a message, and has seen enough to know what a scan costs."""
    cursor = Cursor()
    cursor.learn(HEAD, database.head_s, database.now_s, [row(7)])
    for _ in range(12):
        database.now_s += 1
        database.poll(cursor)
    database.scans.clear()
    return cursor


def polled_for(seconds: float, database: Database, cursor: Cursor, poll: Callable[[], object]) -> None:
    end = database.now_s + seconds
    while database.now_s < end:
        poll()


def test_a_new_consumer_scans_from_the_head() -> None:
    assert Cursor().scan(0.0) is HEAD


def test_while_the_head_is_fast_every_scan_is_from_the_head() -> None:
    database = Database(head_s=0.001)
    cursor = experienced(database)
    for _ in range(1_000):
        database.poll(cursor)
    assert len(database.heads) == len(database.scans) == 1_000


def test_a_head_that_is_slow_because_the_machine_is_slow_is_not_expensive() -> None:
    database = Database(head_s=0.030, cursor_s=0.030)
    cursor = experienced(database)
    for _ in range(100):
        database.poll(cursor)
    assert len(database.heads) == 100


def test_one_slow_moment_does_not_make_the_head_expensive() -> None:
    database = Database(head_s=0.0024)
    cursor = experienced(database)
    for i in range(100):
        database.head_s = 1.0 if i % 4 == 0 else 0.0024
        database.poll(cursor)
    assert not cursor.head_is_expensive


@pytest.mark.parametrize(("head_s", "cursor_s", "polled_s"), [(0.004, 0.001, 3), (0.05, 0.005, 15), (0.5, 0.05, 120)])
def test_an_expensive_head_is_scanned_in_a_twentieth_of_the_time(
    head_s: float, cursor_s: float, polled_s: float
) -> None:
    database = Database(head_s=head_s, cursor_s=cursor_s, cursor_rows=[row(8)] * 10)
    cursor = experienced(database)
    start = database.now_s
    polled_for(polled_s, database, cursor, lambda: database.poll(cursor))
    spent = database.now_s - start
    assert len(database.heads) * head_s <= 0.06 * spent
    gaps = [later - earlier for earlier, later in zip(database.heads, database.heads[1:], strict=False)]
    assert max(gaps) <= max(0.2, 20 * head_s) + head_s + 2 * cursor_s


def test_an_expired_lease_behind_the_cursor_is_found_within_the_budget() -> None:
    database = Database(head_s=EXPENSIVE_S)
    cursor = experienced(database)
    expired_at = database.now_s
    database.head_rows = [row(3, due_at=NOON - timedelta(hours=1))]
    while not (events := database.poll(cursor)):
        assert database.now_s < expired_at + 20 * EXPENSIVE_S + 2 * EXPENSIVE_S, "it was not found in time"
    assert events[0].version == 3


def test_rows_before_the_cursor_come_first_and_the_head_completes_a_short_batch() -> None:
    database = Database(head_s=EXPENSIVE_S, cursor_rows=[row(8), row(9)], head_rows=[row(3)])
    cursor = experienced(database)
    database.now_s = cursor.head_due - EXPENSIVE_S
    assert [lease.version for lease in database.poll(cursor)] == [8, 9], "the head may not be scanned yet"
    database.cursor_s = 2 * EXPENSIVE_S  # the head becomes due during the scan from the cursor
    assert [lease.version for lease in database.poll(cursor)] == [3, 8, 9]


def test_a_full_batch_from_the_cursor_is_not_completed() -> None:
    database = Database(head_s=EXPENSIVE_S, cursor_rows=[row(i) for i in range(8, 18)])
    cursor = experienced(database)
    database.now_s = cursor.head_due - EXPENSIVE_S
    assert len(database.poll(cursor)) == 10
    assert [from_head for _, from_head in database.scans] == [False]


def test_when_the_head_is_fast_again_every_scan_is_from_there() -> None:
    database = Database(head_s=EXPENSIVE_S)
    cursor = experienced(database)
    assert cursor.head_is_expensive
    database.head_s = 0.001
    polled_for(2 * 20 * EXPENSIVE_S, database, cursor, lambda: database.poll(cursor))
    database.scans.clear()
    for _ in range(100):
        database.poll(cursor)
    assert len(database.heads) == 100


def test_a_head_that_takes_long_because_it_gives_much_is_not_expensive() -> None:
    """A batch takes its time from wherever it comes. A scan from the cursor that finds nothing proves nothing."""
    database = Database(head_s=FAST_S, row_s=0.0001, head_rows=[row(i) for i in range(100)])
    cursor = Cursor()
    for _ in range(20):
        assert len(database.poll(cursor, 100)) == 100, "it is deliverable, and was not delivered"


def test_a_cursor_that_was_tried_at_a_bad_moment_is_tried_again() -> None:
    """Behind it was nothing just then, so the scans from an expensive head were all there was to compare with."""
    database = Database(head_s=0.02, row_s=0.00005, head_rows=[row(i) for i in range(100)])
    cursor = Cursor()
    for _ in range(12):
        database.poll(cursor, 100)
    database.cursor_rows = [row(i) for i in range(200, 300)]
    for _ in range(100):
        database.poll(cursor, 100)
    assert cursor.head_is_expensive


def test_a_cursor_moves_forward_only_and_by_priority() -> None:
    cursor = Cursor()
    later = NOON + timedelta(seconds=1)
    cursor.learn(HEAD, FAST_S, 0.0, [row(5), row(9, priority=3), row(4, due_at=later)])
    cursor.learn(HEAD, FAST_S, 0.0, [row(6), row(2, priority=3)])
    expected: Sequence[ScanPosition] = [
        ScanPosition(later, 4),
        ScanPosition(),
        ScanPosition(),
        ScanPosition(NOON, 9),
        *[ScanPosition()] * 6,
    ]
    assert list(cursor.positions) == expected
