"""Following the journal of PostgreSQL while transactions overlap, commit late, roll back, and the journal is pruned."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

import tarry
from tarry.core.journal.events import EventKind
from tarry.core.journal.positions import GapReason
from tarry.storage.memory import MemoryStore


@pytest.fixture
def app(database: str) -> Iterator[tarry.App]:
    with tarry.connect(database) as app:
        app.queues.create("q")
        yield app


def keys(app: tarry.App, after: str, *, limit: int = 1_000) -> tuple[list[str | None], str]:
    event_keys: list[str | None] = []
    while True:
        page = app.store.run(app.store.journal.tail(after, limit=limit))
        assert page.gap is None
        event_keys += [event.key for _, event in page.events]
        after = page.position
        if page.complete:
            return event_keys, after


def test_an_event_that_commits_late_is_tailed_when_it_commits(app: tarry.App, database: str) -> None:
    start = app.store.run(app.store.journal.tail(None)).position
    with psycopg.connect(database) as slow:
        app.queue("q").offer("early-id", 1, conn=slow)
        app.queue("q").offer("later-id", 1)
        tailed, position = keys(app, start)
        assert tailed == ["later-id"]
        assert keys(app, position)[0] == []
        slow.commit()
    assert keys(app, position)[0] == ["early-id"]
    assert sorted(filter(None, keys(app, start)[0])) == ["early-id", "later-id"]


def test_a_kind_of_a_newer_tarry_is_passed_over(app: tarry.App, database: str) -> None:
    start = app.store.run(app.store.journal.tail(None)).position
    with psycopg.connect(database, autocommit=True) as newer:
        newer.execute("alter type tarry.event_kind add value 'foretold'")
        app.queue("q").offer("before", 1)
        newer.execute("insert into tarry.event (at, kind, queue) select now(), 'foretold', id from tarry.queue")
        for limit in (1, 2, 1_000):
            assert keys(app, start, limit=limit)[0] == ["before"]
        newer.execute("update tarry.event set key = 'before' where kind = 'foretold'")
        assert [event.kind for event in app.store.run(app.store.journal.timeline("q", "before"))] == [EventKind.OFFERED]
        app.queue("q").offer("after", 1)
    for limit in (1, 2, 1_000):
        assert keys(app, start, limit=limit)[0] == ["before", "after"]


def test_an_event_that_commits_late_does_not_delay_the_others(app: tarry.App, database: str) -> None:
    start = app.store.run(app.store.journal.tail(None)).position
    with psycopg.connect(database) as slow:
        app.queue("q").offer("slow", 1, conn=slow)
        for n in range(3):
            app.queue("q").offer(f"k{n}", 1)
            tailed, start = keys(app, start)
            assert tailed == [f"k{n}"]
        slow.rollback()
    assert keys(app, start)[0] == []


def test_a_position_in_the_middle_of_a_window_keeps_to_that_window(app: tarry.App, database: str) -> None:
    start = app.store.run(app.store.journal.tail(None)).position
    with psycopg.connect(database) as slow:
        app.queue("q").offer("slow", 1, conn=slow)
        app.queue("q").offer("a", 1)
        app.queue("q").offer("b", 1)
        page = app.store.run(app.store.journal.tail(start, limit=1))
        assert [event.key for _, event in page.events] == ["a"]
        slow.commit()
    # "slow" has the lowest number of all, and was not there when the window was closed.
    assert keys(app, page.position)[0] == ["b", "slow"]
    assert keys(app, page.events[0][0], limit=1)[0] == ["b", "slow"]


@pytest.mark.parametrize("seed", [1, 2])
def test_writers_that_overlap_are_followed_without_loss_and_without_doubles(
    app: tarry.App, database: str, seed: int
) -> None:
    """Some hold their transaction open over those of others, some roll back; the follower stops and starts at random."""
    start, committed, lock = app.store.run(app.store.journal.tail(None)).position, set[str](), threading.Lock()

    def write(number: int) -> None:
        dice = random.Random(seed * 100 + number)
        with psycopg.connect(database) as conn:
            for n in range(25):
                batch = [f"{number}-{n}-{i}" for i in range(dice.randint(1, 4))]
                for key in batch:
                    app.queue("q").offer(key, 1, conn=conn)
                if dice.random() < 0.25:
                    conn.rollback()
                else:
                    conn.commit()
                    with lock:
                        committed.update(batch)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    dice, tailed, position = random.Random(seed), list[Any](), start
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        page = app.store.run(app.store.journal.tail(position, limit=dice.randint(1, 7)))
        assert page.gap is None
        # As a client does that is cut off in the middle: it goes on from the last event it has seen.
        seen = page.events[: dice.randint(0, len(page.events))] if page.events else ()
        tailed += [event.key for _, event in seen]
        whole = len(seen) == len(page.events)
        position = page.position if whole else seen[-1][0] if seen else position
    tailed += keys(app, position, limit=5)[0]
    assert len(tailed) == len(set(tailed))
    assert set(tailed) == committed


def test_a_lease_that_was_tailed_is_on_disk(app: tarry.App, database: str) -> None:
    """Leases commit without waiting for the disk; what would become of that is in test_tail_crashes."""
    app.queue("q").offer("a", 1)
    start = app.store.run(app.store.journal.tail(None)).position
    with psycopg.connect(database, autocommit=True) as conn:
        assert app.queue("q").try_poll() is not None
        written = conn.execute("select pg_current_wal_insert_lsn()").fetchone()
        page = app.store.run(app.store.journal.tail(start))
        flushed = conn.execute("select pg_current_wal_flush_lsn() >= %s::pg_lsn", written).fetchone()
    assert [event.kind for _, event in page.events] == [EventKind.LEASED]
    assert flushed == (True,)


def test_after_a_day_was_pruned_an_older_position_is_a_gap(app: tarry.App, database: str) -> None:
    before = app.store.run(app.store.journal.tail(None)).position
    app.queue("q").offer("a", 1)
    after = keys(app, before)[1]
    with psycopg.connect(database, autocommit=True) as conn:
        today = datetime.now(UTC).date()
        rows = conn.execute("select count(*) from tarry.event").fetchone()
        assert rows is not None
        conn.execute("insert into tarry.archive_day (lake, day, rows) values ('lake', %s, %s)", (today, rows[0]))
        assert conn.execute("select tarry.journal_drop(%s, %s)", (today, rows[0])).fetchone() == rows
    assert app.store.run(app.store.journal.tail(before)).gap is GapReason.PRUNED
    assert app.store.run(app.store.journal.tail(after)).gap is None
    app.queue("q").offer("b", 1)
    assert keys(app, after)[0] == ["b"]


def test_a_journal_in_memory_forgets_and_reports_a_gap() -> None:
    app = tarry.App(MemoryStore(events_kept=3))
    app.queues.create("q")
    start = app.store.run(app.store.journal.tail(None)).position
    for n in range(3):
        app.queue("q").offer(f"k{n}", 1)
    assert [event.key for _, event in app.store.run(app.store.journal.tail(start)).events] == ["k0", "k1", "k2"]
    app.queue("q").offer("k3", 1)
    assert app.store.run(app.store.journal.tail(start)).gap is GapReason.PRUNED
