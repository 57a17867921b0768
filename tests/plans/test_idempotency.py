"""Answers are found by their key and forgotten by their age, however many there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from tarry.core.security.idempotency import IdempotencyKey, StoredResponse
from tarry.storage.postgres.arrays import register_array_dumpers
from tarry.storage.postgres.connections import KEYWORDS, configure
from tarry.storage.postgres.security import role as security
from tarry.storage.postgres.statement import Statement, bind
from tests.kit.servers import Server
from tests.plans.explaining import Plan, fresh, kept, prepare, undone

ROWS = 50_000
REQUESTS = [IdempotencyKey("", f"k{number}", b"x" * 32) for number in range(10)]
STATEMENTS: dict[str, Callable[[], Statement[Any]]] = {
    "find": lambda: security.find_responses(REQUESTS),
    "store": lambda: security.store_responses(
        [(IdempotencyKey("", "new", b"x" * 32), StoredResponse(201, b"{}"))], None
    ),
    "expire": lambda: bind("security/idempotency_expire", older_than=0.0, limit=10, leader=None, fence=None, now=None),
}


@pytest.fixture(scope="module")
def connections(server: Server) -> Iterator[tuple[psycopg.Connection[Any], psycopg.Connection[Any]]]:
    """One of ours, with plans from when the table was empty, and one of another application."""
    dsn = server.new_database()
    own, other = psycopg.connect(dsn, **KEYWORDS), psycopg.connect(dsn, autocommit=True)
    configure(own)
    register_array_dumpers(other.adapters)
    for make in STATEMENTS.values():
        prepare(own, make())
    other.execute(
        "insert into tarry.stored_response select '', 'k' || i, %s, 201, '{}', now() - make_interval(secs => i)"
        " from generate_series(0, %s) i",
        (b"x" * 32, ROWS),
    )
    other.execute("analyze tarry.stored_response")
    yield own, other
    own.close()
    other.close()


@pytest.mark.parametrize(("name", "most"), [("find", 10), ("store", 0), ("expire", 20)])
def test_no_plan_walks_further_than_it_must(connections: Any, name: str, most: int) -> None:
    own, other = connections
    plans: list[Plan] = []
    for conn, explain in ((own, kept), (other, fresh)):  # one after the other, or they would wait for each other
        with undone(conn):
            plans.append(explain(conn, STATEMENTS[name](), run=True))
    for plan in plans:
        assert "Seq Scan" not in plan.ways("answer")
        assert plan.rows("answer") <= most, plan.root
