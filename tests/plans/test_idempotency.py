"""Answers are found by their key and forgotten by their age, however many there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tarry.core.once import Answered, Once
from tarry.storage.postgres import answers
from tarry.storage.postgres.arrays import teach
from tarry.storage.postgres.connections import KEYWORDS, configure
from tarry.storage.postgres.statement import Statement
from tests.kit.servers import Server
from tests.plans.explaining import Plan, fresh, kept, prepare, undone

ROWS = 50_000
REQUESTS = [Once("", f"k{number}", b"x" * 32) for number in range(10)]
STATEMENTS: dict[str, Callable[[], Statement[Any]]] = {
    "recall": lambda: answers.recall(REQUESTS),
    "keep": lambda: answers.keep([(Once("", "new", b"x" * 32), Answered(201, b"{}"))], None),
    "forget": lambda: answers.forget(timedelta(0), 10, None, None),
}


@pytest.fixture(scope="module")
def connections(server: Server) -> Iterator[tuple[psycopg.Connection[Any], psycopg.Connection[Any]]]:
    """One of ours, with plans from when the table was empty, and one of somebody else."""
    dsn = server.new_database()
    own, other = psycopg.connect(dsn, **KEYWORDS), psycopg.connect(dsn, autocommit=True)
    configure(own)
    teach(other.adapters)
    for make in STATEMENTS.values():
        prepare(own, make())
    other.execute(
        "insert into tarry.answer select '', 'k' || i, %s, 201, '{}', now() - make_interval(secs => i)"
        " from generate_series(0, %s) i",
        (b"x" * 32, ROWS),
    )
    other.execute("analyze tarry.answer")
    yield own, other
    own.close()
    other.close()


@pytest.mark.parametrize(("name", "most"), [("recall", 10), ("keep", 0), ("forget", 20)])
def test_no_plan_walks_further_than_it_must(connections: Any, name: str, most: int) -> None:
    own, other = connections
    plans: list[Plan] = []
    for conn, explain in ((own, kept), (other, fresh)):  # one after the other, or they would wait for each other
        with undone(conn):
            plans.append(explain(conn, STATEMENTS[name](), run=True))
    for plan in plans:
        assert "Seq Scan" not in plan.ways("answer")
        assert plan.rows("answer") <= most, plan.root
