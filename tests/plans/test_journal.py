"""Questions to the journal go by its one small index, also on a plan that was made when the journal was short."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import tarry
from tarry.core.journal.events import EventKind
from tarry.core.journal.positions import Position
from tarry.storage.postgres.connections import configure
from tarry.storage.postgres.journal import role as journal_role
from tarry.storage.postgres.journal import statements as journal_statements
from tarry.storage.postgres.statement import Statement, bind, sql

EVENTS = 20_000


class Journal:
    def __init__(self, app: tarry.App, conn: psycopg.Connection[Any]) -> None:
        self.app = app
        self._conn = conn
        configure(conn)

    def fill(self) -> None:
        self.app.queue("q").offer_many([tarry.Message(key=f"k{n}", payload=1) for n in range(EVENTS)])
        self._conn.execute(
            "select brin_summarize_new_values(c.oid) from pg_class c join pg_am a on a.oid = c.relam "
            "where amname = 'brin' and relkind = 'i' and relname like 'event%'"
        )

    def pages(self) -> int:
        today = "select pg_relation_size('tarry.event_' || to_char(now() at time zone 'UTC', 'YYYYMMDD')) / 8192"
        return self._value(self._conn.execute(today))

    def head(self) -> int:
        return self._value(self._conn.execute(sql("journal/head")))

    def touched(self, statement: Statement[Any]) -> int:
        plan = self.plan(statement)
        return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]

    def plan(self, statement: Statement[Any]) -> dict[str, Any]:
        query: Any = f"explain (analyze, buffers, format json) {statement.sql}"
        with self._conn.transaction():
            self._conn.execute(journal_statements.prefer_bitmap_scans().sql)
            return self._value(self._conn.execute(query, statement.params))[0]["Plan"]

    @staticmethod
    def _value(cursor: psycopg.Cursor[Any]) -> Any:
        row = cursor.fetchone()
        assert row is not None
        return row[0]


@pytest.fixture
def journal(database: str) -> Iterator[Journal]:
    with tarry.connect(database) as app, psycopg.connect(database, autocommit=True) as conn:
        app.queues.create("q")
        yield Journal(app, conn)


def test_a_look_at_what_is_new_does_not_walk_a_long_journal(journal: Journal) -> None:
    def window() -> Statement[Any]:
        position = Position.parse(journal.app.store.run(journal.app.store.journal.tail(None)).position)
        assert position is not None
        return journal_role._window(position.edge, None, 1_000, 20_000)

    journal.touched(window())
    journal.fill()
    before_the_last = window()
    journal.app.queue("q").offer("new", 1)
    assert journal.touched(before_the_last) < journal.pages() / 3


def test_a_look_at_what_is_new_does_not_walk_back_to_an_old_transaction(journal: Journal, database: str) -> None:
    def window() -> Statement[Any]:
        position = Position.parse(journal.app.store.run(journal.app.store.journal.tail(None)).position)
        assert position is not None
        return journal_role._window(position.edge, None, 1_000, 20_000)

    journal.touched(window())
    with psycopg.connect(database) as old:
        journal.app.queue("q").offer("old", 1, conn=old)
        journal.fill()
        before_the_last = window()
        journal.app.queue("q").offer("new", 1)
        assert journal.touched(before_the_last) < journal.pages() / 3
        position = journal.app.store.run(journal.app.store.journal.tail(None)).position
        old.commit()
    assert [event.key for _, event in journal.app.store.run(journal.app.store.journal.tail(position)).events] == ["old"]


def test_the_timeline_of_one_key_does_not_walk_a_long_journal(journal: Journal) -> None:
    statement = journal_statements.timeline("q", "k500", 1_000)
    journal.plan(statement)
    journal.fill()
    assert "'Seq Scan'" not in str(journal.plan(statement))
    assert len(journal.app.store.run(journal.app.store.journal.timeline("q", "k500"))) == 1


def test_a_look_back_does_not_walk_a_long_journal(journal: Journal) -> None:
    everything = dict.fromkeys(("names", "prefixes", "queue_id", "consumer", "since", "until"))
    filters = {**everything, "kinds": [kind.value for kind in EventKind]}

    def stretch() -> Statement[Any]:
        head = journal.head()
        part = {"from_xid": head - 1, "to_xid": head, "until_id": 2**63 - 1, "limit": 100, "most": None}
        return bind("journal/recent", list[Any], **filters, **part)

    journal.touched(stretch())
    journal.fill()
    journal.app.queue("q").offer("new", 1)
    assert journal.touched(stretch()) < journal.pages() / 3
