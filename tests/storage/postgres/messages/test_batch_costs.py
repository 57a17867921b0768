"""What a batch leaves out: arrays that show nothing, the search for keys that are there twice, the position of every row."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from tarry.core.messages import batches
from tarry.core.messages.model import Draft
from tarry.core.messages.outcomes import Outcome
from tarry.storage.postgres._sync.store import PostgresStore
from tarry.storage.postgres.messages import operations as ops
from tarry.storage.postgres.messages import statements
from tarry.storage.postgres.messages.cursor import HEAD, Cursor
from tarry.storage.postgres.messages.statements import LeasedRow
from tarry.storage.postgres.statement import sql
from tests.kit.settings import FOR_TESTS

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
Q = "q"
ABSENT = ("due_ats", "after_s", "content_types")


@pytest.fixture
def store(database: str) -> Iterator[PostgresStore]:
    store = PostgresStore(database, settings=FOR_TESTS)
    yield store
    store.close()


def python_calls(work: Callable[[], Any]) -> list[str]:
    names: list[str] = []

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            names.append(frame.f_code.co_name)

    gc.disable()  # callbacks of a collection are not calls of the work
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return names


def plain(n: int) -> list[Draft]:
    return [Draft(f"k{i:04d}", b"1", fresh=True) for i in range(n)]


def test_what_no_message_of_a_batch_has_is_not_sent() -> None:
    for offer in (statements.offer_fresh(Q, plain(3), None), statements.offer(Q, plain(3), [1, 2, 3], None, None)):
        assert [offer.params[name] for name in ABSENT] == [None] * 3
    assert statements.offer_fresh(Q, plain(1), None).params["after_s"] is None


def test_what_one_message_of_a_batch_has_is_sent() -> None:
    odd = [Draft("a", b"1", "text/plain"), Draft("b", b"1", due_at=NOON), Draft("c", b"1", after=timedelta(1))]
    offer = statements.offer(Q, odd, [1, 2, 3], None, None)
    assert None not in [offer.params[name] for name in ABSENT]


def test_due_times_do_not_depend_on_what_else_is_in_the_batch(store: PostgresStore, database: str) -> None:
    """Alone, in a batch of its kind, and in a mixed one: now, at an instant, after a while."""
    kinds = [dict[str, Any](), {"due_at": NOON}, {"after": timedelta(days=400, microseconds=7)}]
    for fresh in (True, False):
        offered = [[Draft(f"{i}-alone-{fresh}", b"1", fresh=fresh, **kind)] for i, kind in enumerate(kinds)]
        offered += [
            [Draft(f"{i}-alike-{j}-{fresh}", b"1", fresh=fresh, **kind) for j in (1, 2)] for i, kind in enumerate(kinds)
        ]
        offered += [[Draft(f"{i}-mixed-{fresh}", b"1", fresh=fresh, **kind) for i, kind in enumerate(kinds)]]
        for batch in offered:
            assert store.run(store.messages.offer_many(Q, batch)) == [Outcome.CREATED] * len(batch)
    with psycopg.connect(database) as conn:
        rows = conn.execute("select key, due_at, due_at - created_at, planned_at from tarry.message").fetchall()
    for key, due_at, wait, planned_at in rows:
        kind = kinds[int(key[0])]
        assert planned_at == due_at
        assert due_at == NOON if "due_at" in kind else wait == kind.get("after", timedelta(0)), key


def test_new_keys_are_not_searched_for_duplicates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(batches, "fold")
    op = ops.offer_many(Q, plain(1_000), None)
    assert next(op).sql == sql("messages/offer_fresh")


def test_a_cursor_makes_one_position_for_each_priority_of_a_batch() -> None:
    rows = [
        LeasedRow(bytes(6), f"k{i}", b"1", i, 1, 9 - i // 500, NOON, NOON, NOON, None, None, None, False)
        for i in range(1_000)
    ]
    cursor = Cursor()
    assert len(python_calls(lambda: cursor.learn(HEAD, 0.01, 0.0, rows))) <= 8
    assert [position.version for position in cursor.positions] == [0] * 8 + [999, 499]


def test_a_poll_sorts_rows_without_a_call_for_each() -> None:
    """The server returns them as they are in the table."""
    rows = [
        LeasedRow(bytes(6), f"k{i}", b"1", i, 1, i % 2, NOON, NOON, NOON, None, None, None, False)
        for i in reversed(range(1_000))
    ]
    assert len(python_calls(lambda: ops.sort_in_order(rows))) <= 4
    assert [(row.priority, row.version) for row in rows] == [
        (i % 2, i) for i in [*range(1, 1_000, 2), *range(0, 1_000, 2)]
    ]
