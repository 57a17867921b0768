"""NOTIFY is sent once, and only if somebody sleeps for later: in every transaction it would cost most of the commit rate."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from tarry.core.messages import Draft, Failure
from tarry.core.settings import QueueSettings, StoreSettings
from tarry.storage.postgres.connections import KEYWORDS, configure
from tarry.storage.postgres.drive import drive
from tarry.storage.postgres.sync import PostgresStore
from tarry.storage.postgres.wait_statements import Sleeper, forget_waiters, leave, wait
from tests.spark.sink_kit import offered, row

QUEUE = "q"
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


class Ear:
    """Listens, and says what was notified so far. A marker tells where that ends, so nobody waits for nothing."""

    def __init__(self, dsn: str) -> None:
        self.conn = psycopg.connect(dsn, autocommit=True)
        self.conn.execute("listen tarry")

    def heard(self) -> list[str]:
        self.conn.execute("select pg_notify('tarry', 'marker')")
        heard: list[str] = []
        for notification in self.conn.notifies(timeout=30):
            if notification.payload == "marker":
                return heard
            heard.append(notification.payload)
        raise AssertionError("notifications do not arrive at all")


@pytest.fixture
def ear(database: str) -> Iterator[Ear]:
    ear = Ear(database)
    yield ear
    ear.conn.close()


@pytest.fixture
def own(database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database, **KEYWORDS) as conn:
        configure(conn)
        yield conn


@pytest.fixture
def store(database: str) -> Iterator[PostgresStore]:
    store = PostgresStore(database, settings=StoreSettings(pool_size=2))
    store.create_queue(QUEUE, QueueSettings(), exist_ok=True)
    yield store
    store.close()


def sleep(
    conn: psycopg.Connection[Any], sleep_for: timedelta = MINUTE, *, type: str | None = None, who: str = "me"
) -> Any:
    sleeper = Sleeper(who=who, sleep_for=sleep_for, scan_every=timedelta(seconds=1), longest=max(sleep_for, MINUTE))
    return drive(conn, wait(QUEUE, type, sleeper, None).run())


def fresh(n: int, delay: timedelta = timedelta(0)) -> list[Draft]:
    return [Draft(f"fresh-{n}-{i}", b"", delay=delay, fresh=True) for i in range(n)]


def test_nobody_sleeps_and_nothing_is_sent(store: PostgresStore, ear: Ear) -> None:
    store.offer(QUEUE, Draft("a", b""))
    store.offer_many(QUEUE, fresh(3))
    store.offer_many(QUEUE, fresh(2_000))
    (held, *_) = store.lease(QUEUE, 1, lambda data, _: data)
    store.release(QUEUE, [held.hold])
    assert ear.heard() == []


@pytest.mark.parametrize("n", [1, 3, 2_000])
@pytest.mark.parametrize("is_fresh", [True, False])
def test_one_statement_sends_one(
    store: PostgresStore, own: psycopg.Connection[Any], ear: Ear, n: int, is_fresh: bool
) -> None:
    for who in ("me", "you", "them"):
        sleep(own, who=who)
    store.offer_many(QUEUE, fresh(n) if is_fresh else [Draft(f"k{i:04d}", b"") for i in range(n)])
    assert ear.heard() == ["q/"]


def test_what_is_due_after_the_head_sends_nothing(store: PostgresStore, own: psycopg.Connection[Any], ear: Ear) -> None:
    store.offer(QUEUE, Draft("head", b"", delay=timedelta(seconds=30)))
    assert sleep(own, HOUR).due_in == pytest.approx(timedelta(seconds=30), abs=timedelta(seconds=20))
    store.offer(QUEUE, Draft("later", b"", delay=timedelta(seconds=40)))
    store.offer(QUEUE, Draft("much later", b"", delay=HOUR))
    store.offer_many(QUEUE, fresh(3, delay=MINUTE))
    store.offer_many(QUEUE, fresh(2_000, delay=MINUTE))
    assert ear.heard() == []
    store.offer(QUEUE, Draft("earlier", b"", delay=timedelta(seconds=1)))
    assert ear.heard() == ["q/"]


def test_what_is_due_after_the_sleeper_looks_anyway_sends_nothing(
    store: PostgresStore, own: psycopg.Connection[Any], ear: Ear
) -> None:
    sleep(own, MINUTE)
    store.offer(QUEUE, Draft("later", b"", delay=3 * MINUTE))
    assert ear.heard() == []


@pytest.mark.parametrize(("nap_s", "next_nap_s", "due_s"), [(10, 40, 45), (60, 60, 110)])
def test_an_offer_whose_transaction_spans_the_renewal_of_a_sleep_wakes_the_sleeper(
    store: PostgresStore, own: psycopg.Connection[Any], ear: Ear, database: str, nap_s: int, next_nap_s: int, due_s: int
) -> None:
    """The renewal cannot see the message, and the offer saw the row before the renewal. Without a notification the consumer
    sleeps past the due time."""
    sleep(own, timedelta(seconds=nap_s))
    with psycopg.connect(database) as conn:
        store.offer(QUEUE, Draft("a", b"", delay=timedelta(seconds=due_s)), conn=conn)
        assert sleep(own, timedelta(seconds=next_nap_s)).due_in is None
        own.commit()
        assert ear.heard() == []
        conn.commit()
    assert ear.heard() == ["q/"]


def test_an_offer_that_changes_nothing_sends_nothing(
    store: PostgresStore, own: psycopg.Connection[Any], ear: Ear
) -> None:
    at = datetime.now(UTC) + timedelta(seconds=50)
    store.offer(QUEUE, Draft("a", b"", due_at=at))
    sleep(own, timedelta(seconds=10))
    store.offer(QUEUE, Draft("a", b"", due_at=at))
    assert ear.heard() == []


def test_a_sleeper_whose_time_has_passed_is_dead_or_looking(
    store: PostgresStore, own: psycopg.Connection[Any], ear: Ear
) -> None:
    sleep(own)
    own.execute("update tarry.waiter set wakes_at = clock_timestamp() - interval '1 second'")
    store.offer(QUEUE, Draft("a", b""))
    store.offer(QUEUE, Draft("past", b"", due_at=datetime.now(UTC) - HOUR))
    store.offer_many(QUEUE, fresh(2_000))
    assert ear.heard() == []


def test_for_a_second_after_its_time_a_sleeper_is_woken_for_what_is_due_at_once(
    store: PostgresStore, own: psycopg.Connection[Any], ear: Ear
) -> None:
    """It has looked, and is about to sleep again: what is committed just now it may not have seen."""
    sleep(own)
    own.execute("update tarry.waiter set wakes_at = clock_timestamp() - interval '10 ms'")
    store.offer(QUEUE, Draft("later", b"", delay=timedelta(seconds=1)))
    assert ear.heard() == []
    for offer in ([Draft("now", b"")], fresh(1), fresh(2_000)):
        own.execute("update tarry.waiter set wakes_at = clock_timestamp()")
        store.offer_many(QUEUE, offer)
        assert ear.heard() == ["q/"]


def test_one_type_rings_for_those_who_wait_for_it(store: PostgresStore, own: psycopg.Connection[Any], ear: Ear) -> None:
    for type in ("x", "y"):
        sleep(own, type=type)
    store.offer(QUEUE, Draft("none", b""))
    store.offer_many(QUEUE, fresh(1) + fresh(2))
    store.offer_many(QUEUE, fresh(2_001))
    assert ear.heard() == []
    store.offer(QUEUE, Draft("x", b"", type="x"))
    assert ear.heard() == ["q/x"]
    store.offer_many(QUEUE, [Draft("x2", b"", type="x"), Draft("y", b"", type="y")])
    assert sorted(ear.heard()) == ["q/x", "q/y"]


def test_settling_rings_where_something_becomes_deliverable_earlier(
    store: PostgresStore, own: psycopg.Connection[Any], ear: Ear
) -> None:
    store.offer_many(QUEUE, [Draft(key, b"", type="t") for key in "abcd"])
    a, b, c, d = store.lease(QUEUE, 4, lambda data, _: data, lease_for=HOUR)
    sleep(own)
    sleep(own, type="t")
    store.touch(QUEUE, [a.hold])
    store.ack(QUEUE, [a.hold])
    store.nack(QUEUE, [Failure(b.hold, delay=HOUR)])
    store.bury(QUEUE, [c.hold])
    assert ear.heard() == []
    store.release(QUEUE, [d.hold])
    assert sorted(ear.heard()) == ["q/", "q/t"]
    assert store.redrive(QUEUE) == 1
    assert sorted(ear.heard()) == ["q/", "q/t"]
    (held, *_) = store.lease(QUEUE, 1, lambda data, _: data)
    store.nack(QUEUE, [Failure(held.hold, delay=timedelta(seconds=1))])
    assert sorted(ear.heard()) == ["q/", "q/t"]


def test_going_on_rings_and_pausing_does_not(store: PostgresStore, own: psycopg.Connection[Any], ear: Ear) -> None:
    store.offer(QUEUE, Draft("a", b"", delay=HOUR))
    sleep(own)
    store.pause(QUEUE)
    assert ear.heard() == []
    store.resume(QUEUE)
    assert ear.heard() == ["q/"]
    store.resume(QUEUE)
    assert ear.heard() == []


def test_what_the_pipeline_offers_rings_for_each_queue_that_somebody_waits_for(
    database: str, store: PostgresStore, own: psycopg.Connection[Any], ear: Ear
) -> None:
    sleep(own)
    sleep(own, type="t")
    offered(database, [[row(QUEUE, "later", after=HOUR), row("other", "a")]])
    assert ear.heard() == []
    offered(database, [[row(QUEUE, "a"), row(QUEUE, "b")], [row("other", "b", type="t")]])
    assert ear.heard() == ["q/"]
    offered(database, [[row(QUEUE, "c", type="t")]])
    assert sorted(ear.heard()) == ["q/", "q/t"]


def test_other_queues_do_not_ring(store: PostgresStore, own: psycopg.Connection[Any], ear: Ear) -> None:
    sleep(own)
    store.offer("other", Draft("a", b""))
    assert ear.heard() == []


def test_a_sleeper_behind_a_thousand_leases_looks_again_after_one_scan(
    store: PostgresStore, own: psycopg.Connection[Any]
) -> None:
    """What waits behind them cannot be seen from the head, and must not wait for the first of their leases to end."""
    store.offer_many(QUEUE, [Draft(f"k{i:04d}", b"") for i in range(1_000)])
    assert len(store.lease(QUEUE, 1_000, lambda data, _: data, lease_for=HOUR)) == 1_000
    assert sleep(own).due_in == pytest.approx(timedelta(seconds=1), abs=timedelta(milliseconds=1))


def test_sleeping_again_changes_the_row_in_place(store: PostgresStore, own: psycopg.Connection[Any]) -> None:
    for _ in range(50):
        sleep(own)
    own.execute("select pg_stat_force_next_flush()")
    query = "select n_tup_ins, n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = 'waiter'"
    assert own.execute(query).fetchone() == (1, 49, 49)


def test_a_process_takes_back_what_it_said_unless_it_has_just_said_it_again(
    store: PostgresStore, own: psycopg.Connection[Any]
) -> None:
    def rows() -> list[Any]:
        return own.execute("select who, type from tarry.waiter order by 1, 2").fetchall()

    sleep(own)
    sleep(own, type="t")
    sleep(own, who="you")
    drive(own, leave("me", QUEUE, None).run())
    assert len(rows()) == 3
    own.execute("update tarry.waiter set renewed_at = renewed_at - interval '2 seconds'")
    drive(own, leave("me", QUEUE, None).run())
    assert rows() == [("me", "t"), ("you", "")]
    drive(own, leave("me").run())
    assert rows() == [("you", "")]
    drive(own, forget_waiters().run())
    assert rows() == [("you", "")]
    own.execute(
        "update tarry.waiter set wakes_at = now() - interval '2 hours', renewed_at = now() - interval '2 hours'"
    )
    drive(own, forget_waiters().run())
    assert rows() == []
