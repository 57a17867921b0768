"""Transactions that hold vacuum back are detected on a real server, and named so that an operator can end them."""

from __future__ import annotations

import psycopg
import pytest

import tarry
from tarry.storage.postgres.maintenance import role as maintenance


def test_a_transaction_left_open_is_named(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "LONGEST_SNAPSHOT", maintenance.LONGEST_SNAPSHOT * 0)
    with tarry.connect(database) as app, psycopg.connect(database, application_name="forgotten") as theirs:
        assert app.store.run(app.store.maintenance.vacuum_problems()) == []
        theirs.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        theirs.execute("select count(*) from tarry.message")
        (vacuum_problem,) = app.store.run(app.store.maintenance.vacuum_problems())
        assert vacuum_problem.what == "oldest snapshot"
        assert (
            f"session {theirs.info.backend_pid} (forgotten, idle in transaction) has been open for"
            in vacuum_problem.detail
        )
        theirs.rollback()
        assert app.store.run(app.store.maintenance.vacuum_problems()) == []


def test_dead_rows_that_are_not_vacuumed_are_counted(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "MOST_DEAD_ROWS", 5)
    with tarry.connect(database) as app, psycopg.connect(database, autocommit=True) as conn:
        app.queue("orders").offer("a", 1)
        for _ in range(10):
            conn.execute("update tarry.message set type = type")
        conn.execute("select pg_stat_force_next_flush()")
        (vacuum_problem,) = app.store.run(app.store.maintenance.vacuum_problems())
        assert (vacuum_problem.what, vacuum_problem.detail[:12]) == ("dead rows", "10 dead and ")
