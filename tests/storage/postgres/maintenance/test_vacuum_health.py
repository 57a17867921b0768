"""What holds vacuum back is found on a real server, and named so that somebody can end it."""

from __future__ import annotations

import psycopg
import pytest

import tarry
from tarry.storage.postgres import upkeep_statements


def test_a_transaction_left_open_is_named(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep_statements, "LONGEST_SNAPSHOT", upkeep_statements.LONGEST_SNAPSHOT * 0)
    with tarry.connect(database) as app, psycopg.connect(database, application_name="forgotten") as theirs:
        assert app.store.strains() == []
        theirs.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        theirs.execute("select count(*) from tarry.message")
        (strain,) = app.store.strains()
        assert strain.what == "oldest snapshot"
        assert f"session {theirs.info.backend_pid} (forgotten, idle in transaction) has been open for" in strain.found
        theirs.rollback()
        assert app.store.strains() == []


def test_dead_rows_that_nobody_cleans_up_are_counted(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep_statements, "MOST_DEAD_ROWS", 5)
    with tarry.connect(database) as app, psycopg.connect(database, autocommit=True) as conn:
        app.queue("orders").offer("a", 1)
        for _ in range(10):
            conn.execute("update tarry.message set type = type")
        conn.execute("select pg_stat_force_next_flush()")
        (strain,) = app.store.strains()
        assert (strain.what, strain.found[:13]) == ("dead rows", "10 dead rows ")
