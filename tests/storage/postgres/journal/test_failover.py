"""A standby in place of its primary: what was accepted, and what readers of the journal rely on."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

import tarry
from tarry.core.analytics.manifest import OtherCluster
from tarry.core.errors import InvalidState
from tarry.core.journal.positions import GapReason, Position
from tarry.core.journal.snapshots import BEGINNING, Scan, SnapshotBound, Window
from tarry.pipeline import pipeline_on
from tarry.storage.postgres._sync.store import PostgresStore
from tests.kit.sleepers import until
from tests.kit.standby import standby_of
from tests.kit.steps import TIMEOUT_S, in_background
from tests.storage.postgres.fallible import FallibleServer, fallible_server


@pytest.fixture
def primary() -> Iterator[FallibleServer]:
    with fallible_server() as server:
        yield server


def test_what_was_accepted_with_a_synchronous_standby_is_delivered_after_its_promotion(primary: FallibleServer) -> None:
    with standby_of(primary.dsn, synchronous=True) as standby:
        with tarry.connect(primary.dsn) as app:
            app.queues.create("q")
            for n in range(5):
                app.queue("q").offer(f"k{n}", n)
        primary.stop()
        standby.promote()
        with tarry.connect(standby.dsn) as app:
            assert sorted(delivery.key for delivery in app.queue("q").try_poll_many(10)) == [f"k{n}" for n in range(5)]


def test_what_a_standby_did_not_receive_is_not_there_after_its_promotion(primary: FallibleServer) -> None:
    """Asynchronous replication: this loss is documented. The test is of the kit that other tests rely on."""
    with standby_of(primary.dsn) as standby:
        with tarry.connect(primary.dsn) as app:
            app.queues.create("q")
            app.queue("q").offer("received", 1)
            standby.await_caught_up()
            standby.pause_receive()
            app.queue("q").offer("behind", 1)
        primary.stop()
        standby.promote()
        with tarry.connect(standby.dsn) as app:
            assert [delivery.key for delivery in app.queue("q").try_poll_many(10)] == ["received"]


def tailed_keys(app: tarry.App, after: str) -> list[str | None]:
    """The keys of all events after a position, which must be there without a gap."""
    keys: list[str | None] = []
    while True:
        page = app.store.run(app.store.journal.tail(after))
        assert page.gap is None
        keys += [event.key for _, event in page.events]
        after = page.position
        if page.complete:
            return keys


def offer(app: tarry.App, *keys: str) -> None:
    for key in keys:
        app.queue("q").offer(key, 1)


def reached(app: tarry.App, after: str) -> str:
    page = app.store.run(app.store.journal.tail(after))
    assert page.complete
    return page.position


NEW = [f"new-{n}" for n in range(12)]


def test_a_position_that_the_promoted_standby_had_not_received_is_a_gap_and_no_new_event_is_left_out(
    primary: FallibleServer,
) -> None:
    with standby_of(primary.dsn) as standby:
        with tarry.connect(primary.dsn) as app:
            app.queues.create("q")
            start = app.store.run(app.store.journal.tail(None)).position
            offer(app, "received")
            received = reached(app, start)
            standby.await_caught_up()
            standby.pause_receive()
            offer(app, *(f"lost-{n}" for n in range(5)))
            position = reached(app, received)
        primary.stop()
        standby.promote()
        with tarry.connect(standby.dsn) as app:
            offer(app, *NEW)  # more than were lost: their transaction numbers are beyond the position
            page = app.store.run(app.store.journal.tail(position))
            assert (page.gap, page.complete) == (GapReason.FAILOVER, False)
            assert tailed_keys(app, page.position) == NEW
            assert tailed_keys(app, received) == NEW, "a position that was received is as good as before"
            assert tailed_keys(app, start) == ["received", *NEW]


def test_the_same_for_the_archive(primary: FallibleServer) -> None:
    with standby_of(primary.dsn) as standby:
        with tarry.connect(primary.dsn) as app:
            app.queues.create("q")
            windows = pipeline_on(primary.dsn).windows
            system_id, received = windows.system_id(), windows.edge()
            standby.await_caught_up()
            standby.pause_receive()
            offer(app, *(f"lost-{n}" for n in range(5)))
            edge = windows.edge()
            windows.check(edge, system_id)
        primary.stop()
        standby.promote()
        with tarry.connect(standby.dsn) as app:
            offer(app, *NEW)
        windows = pipeline_on(standby.dsn).windows
        with pytest.raises(OtherCluster, match="a standby took over"):
            windows.check(edge, system_id)
        windows.check(received, system_id)
        windows.check(SnapshotBound.from_json(received.as_json()), system_id)
        assert windows.has_rows(Window(received, windows.edge()))


def test_a_position_of_an_older_version_is_believed_until_a_failover(primary: FallibleServer) -> None:
    with standby_of(primary.dsn) as standby:
        with tarry.connect(primary.dsn) as app:
            app.queues.create("q")
            position = Position.parse(app.store.run(app.store.journal.tail(None)).position)
            assert position is not None
            old = str(Position(position.journal, SnapshotBound(position.edge.snapshot)))
            offer(app, "a")
            assert tailed_keys(app, old) == ["a"]
            standby.await_caught_up()
        primary.stop()
        standby.promote()
        with tarry.connect(standby.dsn) as app:
            assert app.store.run(app.store.journal.tail(old)).gap is GapReason.FAILOVER


def test_positions_survive_the_promotion_of_a_synchronous_standby(primary: FallibleServer) -> None:
    with standby_of(primary.dsn, synchronous=True) as standby:
        with tarry.connect(primary.dsn) as app:
            app.queues.create("q")
            start = app.store.run(app.store.journal.tail(None)).position
            offer(app, "a", "b")
            assert app.queue("q").try_poll() is not None  # commits without waiting for the standby
            position, system_id = reached(app, start), pipeline_on(primary.dsn).windows.system_id()
            edge = pipeline_on(primary.dsn).windows.edge()
        primary.stop()
        standby.promote()
        with tarry.connect(standby.dsn) as app:
            offer(app, *NEW)
            assert tailed_keys(app, position) == NEW
            assert tailed_keys(app, start) == ["a", "b", "a", *NEW]
            pipeline_on(standby.dsn).windows.check(edge, system_id)


def test_with_a_synchronous_standby_no_position_is_given_out_that_it_has_not_flushed(primary: FallibleServer) -> None:
    """Leases commit without waiting for anything, and are on the disk of the primary a moment later."""
    with (
        standby_of(primary.dsn, synchronous=True) as standby,
        tarry.connect(primary.dsn) as app,
        psycopg.connect(primary.dsn, autocommit=True, application_name="test") as conn,
    ):
        app.queues.create("q")
        offer(app, "a")
        start = app.store.run(app.store.journal.tail(None)).position
        standby.pause_receive()
        assert app.queue("q").try_poll() is not None
        conn.execute("set synchronous_commit = local")
        conn.execute("vacuum")  # else reading writes: hints on the pages that it reads
        flushed = "select pg_current_wal_flush_lsn() >= pg_current_wal_insert_lsn()"
        until(lambda: conn.execute(flushed).fetchone() == (True,), "the lease is not on the disk of the primary")
        with in_background(app.store.run, app.store.journal.tail(start)) as page:
            waits = "select count(*) from pg_stat_activity where wait_event = 'SyncRep'"
            until(lambda: page.done() or conn.execute(waits).fetchone() != (0,), "it does not wait for the standby")
            assert not page.done(), "the position is beyond what the standby has"
            standby.resume_receive()
            assert [event.key for _, event in page.result(TIMEOUT_S).events] == ["a"]


def test_the_journal_is_not_read_on_a_standby(primary: FallibleServer) -> None:
    """Its snapshots do not contain which transactions are running: what commits late would be left out."""
    with standby_of(primary.dsn) as standby:
        with tarry.connect(primary.dsn) as app:
            app.queues.create("q")
            position, windows = app.store.run(app.store.journal.tail(None)).position, pipeline_on(primary.dsn).windows
            edge, system_id = windows.edge(), windows.system_id()
        standby.await_caught_up()
        store = PostgresStore(standby.dsn)
        elsewhere = pipeline_on(standby.dsn).windows
        events, messages = (Scan(table=table, columns=("key",)) for table in ("events", "messages"))
        try:
            for read in (
                lambda: store.run(store.journal.tail(None)),
                lambda: store.run(store.journal.tail(position)),
                elsewhere.edge,
                elsewhere.current_snapshot,
                lambda: elsewhere.check(edge, system_id),
                lambda: elsewhere.slices(events, None),
                lambda: elsewhere.slices(events, Window(BEGINNING, edge)),
            ):
                with pytest.raises(InvalidState, match=r"is a standby \(of .+\)") as refused:
                    read()
                assert "primary" in (refused.value.hint or "")
            assert elsewhere.slices(messages, None), "tables may be read there"
        finally:
            store.close()
