"""Windows between snapshots: nothing missed, nothing doubled, whatever commits late or not at all."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

import tarry
from tarry.app import App
from tarry.core.analytics.manifest import OtherCluster
from tarry.core.errors import InvalidInput, InvalidState
from tarry.core.journal.snapshots import BEGINNING, Mark, Scan, SnapshotBound, Window
from tarry.pipeline import pipeline_on
from tests.kit.spark import write_events

IDS = Scan(table="events", columns=("id",))


def ids(app: App, window: Window, *, partitions: int | None = None) -> list[int]:
    windows = app.pipeline.windows
    return [
        row["id"]
        for piece in windows.slices(IDS, window, partitions=partitions)
        for batch in windows.batches(piece)
        for row in batch.to_pylist()
    ]


def committed(app: App) -> list[int]:
    assert app.dsn is not None
    with psycopg.connect(app.dsn) as conn:
        return sorted(row[0] for row in conn.execute("select id from tarry.event").fetchall())


@pytest.fixture
def transactions(pipeline_app: App) -> Iterator[Any]:
    """Begin transactions that write events and stay open until the test ends them."""
    with ExitStack() as stack:

        def begin(n: int = 1) -> psycopg.Connection[Any]:
            assert pipeline_app.dsn is not None
            conn = stack.enter_context(psycopg.connect(pipeline_app.dsn))
            write_events(conn, n)
            return conn

        yield begin


def test_a_late_commit_is_in_the_window_after_the_commit(pipeline_app: App, transactions: Any) -> None:
    windows = pipeline_app.pipeline.windows
    pipeline_app.queue("q").offer("a", 1)
    late, never = transactions(3), transactions(5)
    pipeline_app.queue("q").offer("b", 1)
    first = windows.edge()
    seen = ids(pipeline_app, Window(BEGINNING, first))
    last = max(seen)
    late.commit()
    never.rollback()
    pipeline_app.queue("q").offer("c", 1)
    second = windows.edge()
    then = ids(pipeline_app, Window(first, second))
    assert sorted(seen + then) == committed(pipeline_app)
    assert len([i for i in then if i < last]) == 3, "what follows `id > last` misses these"


@pytest.mark.parametrize("seed", range(3))
def test_windows_of_any_size_add_up_to_what_was_committed(pipeline_app: App, transactions: Any, seed: int) -> None:
    dice = random.Random(seed)
    windows = pipeline_app.pipeline.windows
    pipeline_app.queue("q").offer("a", 1)
    edge, seen, missed, last = BEGINNING, list[int](), set[int](), 0
    held: list[psycopg.Connection[Any]] = []
    for _ in range(40):
        match dice.choice(["begin", "begin", "write", "commit", "rollback", "read", "cut"]):
            case "begin" if len(held) < 8:
                held.append(transactions(dice.randint(1, 20)))
            case "write":
                pipeline_app.queue("q").offer(None, 1)
            case "commit" if held:
                held.pop(dice.randrange(len(held))).commit()
            case "rollback" if held:
                held.pop(dice.randrange(len(held))).rollback()
            case "read" | "cut" as how:
                window = Window(edge, windows.edge() if edge.is_complete else SnapshotBound(edge.snapshot))
                if how == "cut":
                    window = windows.cut(window, dice.randint(1, 10))
                row_ids = ids(pipeline_app, window, partitions=dice.choice([None, 3]))
                assert how == "read" or len(row_ids) <= 10
                assert (len(row_ids) > 0) == windows.has_rows(window)
                assert sum(digest.rows for digest in windows.digest(window).values()) == len(row_ids)
                missed |= {i for i in row_ids if i <= last}
                seen += row_ids
                last, edge = max([last, *row_ids]), window.end
            case _:
                pass
    for conn in held:
        conn.commit()
    for rest in (SnapshotBound(edge.snapshot), windows.edge()):
        seen += ids(pipeline_app, Window(edge, rest))
        edge = rest
    assert sorted(seen) == committed(pipeline_app)


def test_a_window_reads_the_same_however_much_is_written_meanwhile(pipeline_app: App, transactions: Any) -> None:
    pipeline_app.queue("q").offer("a", 1)
    late = transactions(7)
    window = Window(BEGINNING, pipeline_app.pipeline.windows.edge())
    before = ids(pipeline_app, window)
    late.commit()
    pipeline_app.queue("q").offer("b", 1)
    assert sorted(ids(pipeline_app, window, partitions=3)) == sorted(before)


def test_cuts_of_one_window_give_every_row_once_and_end_with_the_window(pipeline_app: App) -> None:
    windows = pipeline_app.pipeline.windows
    pipeline_app.queue("q").offer_many([tarry.Message(payload=i) for i in range(50)])
    whole = Window(BEGINNING, windows.edge())
    rest, sizes, seen = whole, list[int](), list[int]()
    while True:
        part = windows.cut(rest, 20)
        row_ids = ids(pipeline_app, part)
        sizes.append(len(row_ids))
        seen += row_ids
        if part == rest:
            break
        rest = Window(part.end, whole.end)
    assert sizes == [20, 20, 11]
    assert sorted(seen) == committed(pipeline_app)
    assert part.end == whole.end


def test_a_cut_of_a_long_backlog_looks_at_its_beginning_only(
    pipeline_app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    windows: Any = pipeline_app.pipeline.windows
    start = windows.edge()
    with psycopg.connect(pipeline_app.dsn or "", autocommit=True) as conn:
        for _ in range(3):
            pipeline_app.queue("q").offer_many([tarry.Message(payload=i) for i in range(10)])
            conn.execute("do $$begin for i in 1..1000 loop perform pg_current_xact_id(); commit; end loop; end$$")
    backlog = Window(start, windows.edge())
    first = int(start.snapshot.split(":")[0])
    searches: list[int] = []
    fetch = windows._database.fetch

    def watched(verb: Any, decode: Any, **params: Any) -> Any:
        searches.append(params["end_xid"])
        return fetch(verb, decode, **params)

    monkeypatch.setattr(windows, "_database", SimpleNamespace(fetch=watched))
    windows.cut(backlog, 5)
    assert searches == [first + 1_000]
    searches.clear()
    windows.cut(backlog, 15)
    assert searches[0] == first + 1_000 < searches[1] <= first + 4_000


def test_the_digest_of_a_window_is_the_sum_of_its_parts(pipeline_app: App) -> None:
    windows = pipeline_app.pipeline.windows
    pipeline_app.queue("q").offer_many([tarry.Message(payload=i) for i in range(30)])
    whole = Window(BEGINNING, windows.edge())
    first = windows.cut(whole, 11)
    (a,), (b,), (both,) = (windows.digest(window).values() for window in (first, Window(first.end, whole.end), whole))
    assert a + b == both
    assert both - a == b
    assert (a.rows, b.rows) == (11, 20)


def test_a_day_that_is_gone_when_it_is_read_is_an_error_not_a_gap(pipeline_app: App) -> None:
    pipeline_app.queue("q").offer_many([tarry.Message(payload=i) for i in range(5)])
    windows = pipeline_app.pipeline.windows
    first = windows.edge()
    pipeline_app.queue("q").offer("later", 1)
    (whole,) = windows.slices(IDS, Window(BEGINNING, first))
    (counted,) = windows.slices(IDS, Window(first, windows.edge()))
    assert pipeline_app.dsn is not None
    with psycopg.connect(pipeline_app.dsn) as conn:
        conn.execute("delete from tarry.event where key = 'later'")
        conn.commit()
        with pytest.raises(tarry.TarryError, match="0 rows where 1 were planned"):
            list(windows.batches(counted))
        name = conn.execute("select tableoid::regclass::text from tarry.event limit 1").fetchone()
        assert name is not None
        conn.execute(SQL("drop table {}").format(Identifier(*name[0].split("."))))
        conn.commit()
    with pytest.raises(tarry.TarryError, match="a day of it is gone"):
        list(windows.batches(whole))


@pytest.mark.parametrize("partitions", [None, 5])
def test_the_whole_journal_is_read_by_blocks_with_what_has_no_day_and_within_instants(
    pipeline_app: App, partitions: int | None
) -> None:
    pipeline_app.queue("q").offer("a", 1)
    assert pipeline_app.dsn is not None
    with psycopg.connect(pipeline_app.dsn) as conn:
        write_events(conn, 3_000)
        write_events(conn, 7, at=datetime(2001, 1, 1, tzinfo=UTC))
        write_events(conn, 5, at=datetime(2001, 1, 2, tzinfo=UTC))
    windows = pipeline_app.pipeline.windows
    window = Window(BEGINNING, windows.edge())
    pipeline_app.queue("q").offer("not in the window", 1)
    assert sorted(ids(pipeline_app, window, partitions=partitions)) == committed(pipeline_app)[:-1]
    (by_blocks, counted) = windows.reads(IDS, window, partitions=partitions)
    assert {share.rows for share in by_blocks.shares} == {None}, "no row was looked at"
    assert sum(share.rows or 0 for share in counted.shares) == 12
    scan = Scan(table="events", columns=("at",), until=datetime(2001, 1, 2, tzinfo=UTC))
    slices = windows.slices(scan, window)
    assert sum(batch.num_rows for piece in slices for batch in windows.batches(piece)) == 7
    assert len(slices) == 1, "today cannot have any of it"


def test_an_edge_of_another_cluster_is_refused(pipeline_app: App) -> None:
    windows = pipeline_app.pipeline.windows
    with pytest.raises(OtherCluster, match="belongs to the database cluster 4711"):
        windows.check(windows.edge(), "4711")


def test_an_edge_from_the_future_is_refused(pipeline_app: App) -> None:
    windows = pipeline_app.pipeline.windows
    with pytest.raises(OtherCluster, match="in the future of this database"):
        windows.check(SnapshotBound("99999999:99999999:"), windows.system_id())


def test_an_edge_before_what_was_pruned_is_refused(pipeline_app: App) -> None:
    windows = pipeline_app.pipeline.windows
    early = windows.edge()
    assert pipeline_app.dsn is not None
    with psycopg.connect(pipeline_app.dsn) as conn:
        conn.execute(
            "insert into tarry.archive_day (lake, day, pruned_xid) values ('l', '2026-01-01', pg_current_xact_id())"
        )
    with pytest.raises(InvalidState, match="pruned beyond this position"):
        windows.check(early, windows.system_id())
    windows.check(windows.edge(), windows.system_id())
    windows.check(BEGINNING, windows.system_id())


def test_an_edge_is_on_disk_when_it_is_handed_out(pipeline_app: App) -> None:
    """Leases commit asynchronously: a crash could take them back, and give their transaction numbers to others."""
    queue = pipeline_app.queue("q")
    queue.offer_many([tarry.Message(payload=i) for i in range(20)])
    assert pipeline_app.dsn is not None
    with psycopg.connect(pipeline_app.dsn, autocommit=True) as conn:
        for _ in range(10):
            assert queue.try_poll() is not None
            leased = conn.execute("select pg_current_wal_insert_lsn()").fetchone()
            pipeline_app.pipeline.windows.edge()
            assert leased is not None
            assert conn.execute("select pg_current_wal_flush_lsn() >= %s", leased).fetchone() == (True,)


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (SnapshotBound("5:5:"), SnapshotBound("9:9:", "7:7:", Mark(7, 1))),
        (SnapshotBound("9:9:", "5:5:", Mark(6, 1)), SnapshotBound("12:12:")),
        (SnapshotBound("9:9:", "5:5:", Mark(6, 1)), SnapshotBound("9:9:", "4:4:", Mark(7, 1))),
    ],
)
def test_edges_that_do_not_belong_together_make_no_window(start: SnapshotBound, end: SnapshotBound) -> None:
    with pytest.raises(InvalidInput):
        Window(start, end)


@pytest.mark.parametrize("edge", [BEGINNING, SnapshotBound("9:12:10,11"), SnapshotBound("9:12:10", "5:5:", Mark(7, 1))])
def test_an_edge_survives_json(edge: SnapshotBound) -> None:
    assert SnapshotBound.from_json(edge.as_json()) == edge


@pytest.mark.parametrize(
    "value", [{}, {"snapshot": "1:1:", "base": "1:1:"}, {"snapshot": "x", "base": "y", "xid": "z"}]
)
def test_what_is_no_edge_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput):
        SnapshotBound.from_json(value)


def test_a_pipeline_needs_nothing_but_an_address(pipeline_app: App) -> None:
    assert pipeline_app.dsn is not None
    assert pipeline_on(pipeline_app.dsn).windows.system_id() == pipeline_app.pipeline.windows.system_id()


def test_the_memory_store_has_no_pipeline() -> None:
    from tarry.testing import memory_app

    with memory_app() as app, pytest.raises(InvalidState, match="needs PostgreSQL"):
        _ = app.pipeline
