"""NOTIFY is sent once, and only if a sleeper waits for later: in every transaction it would cost most of the commit rate."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from tarry.core.messages.model import Draft, Failure, PollOptions
from tarry.core.settings import QueueSettings, StoreSettings
from tarry.storage.postgres._sync.runner import drive
from tarry.storage.postgres._sync.store import PostgresStore
from tarry.storage.postgres.connections import KEYWORDS, configure
from tarry.storage.postgres.wakeup.statements import delete_stale_waiters, leave, wait
from tests.edges.spark.sink.sink_kit import offered, row

QUEUE = "q"
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


class ListenConnection:
    """Listens, and returns the notifications so far. A marker ends them, so that a test does not wait in vain."""

    def __init__(self, dsn: str) -> None:
        self.conn = psycopg.connect(dsn, autocommit=True)
        self.conn.execute("listen tarry")

    def received(self) -> list[str]:
        self.conn.execute("select pg_notify('tarry', 'marker')")
        payloads: list[str] = []
        for notification in self.conn.notifies(timeout=30):
            if notification.payload == "marker":
                return payloads
            payloads.append(notification.payload)
        raise AssertionError("notifications do not arrive at all")


@pytest.fixture
def listener(database: str) -> Iterator[ListenConnection]:
    listener = ListenConnection(database)
    yield listener
    listener.conn.close()


@pytest.fixture
def own(database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database, **KEYWORDS) as conn:
        configure(conn)
        yield conn


@pytest.fixture
def store(database: str) -> Iterator[PostgresStore]:
    store = PostgresStore(database, settings=StoreSettings(pool_size=2))
    store.run(store.queues.create(QUEUE, QueueSettings(), exist_ok=True))
    yield store
    store.close()


def sleep(
    conn: psycopg.Connection[Any], sleep_for: timedelta = MINUTE, *, type: str | None = None, process: str = "me"
) -> Any:
    about: dict[str, Any] = {"sleep_for": sleep_for, "scan_every": MINUTE / 60, "longest": max(sleep_for, MINUTE)}
    return drive(conn, wait(QUEUE, type, None, process=process, **about).run())


def fresh(n: int, after: timedelta = timedelta(0)) -> list[Draft]:
    return [Draft(f"fresh-{n}-{i}", b"", after=after, fresh=True) for i in range(n)]


def test_without_a_sleeper_nothing_is_sent(store: PostgresStore, listener: ListenConnection) -> None:
    store.run(store.messages.offer(QUEUE, Draft("a", b"")))
    store.run(store.messages.offer_many(QUEUE, fresh(3)))
    store.run(store.messages.offer_many(QUEUE, fresh(2_000)))
    (held, *_) = store.run(store.messages.poll(QUEUE, 1, lambda data, _: data))
    store.run(store.messages.release(QUEUE, [held.lease_id]))
    assert listener.received() == []


@pytest.mark.parametrize("n", [1, 3, 2_000])
@pytest.mark.parametrize("is_fresh", [True, False])
def test_one_statement_sends_one(
    store: PostgresStore, own: psycopg.Connection[Any], listener: ListenConnection, n: int, is_fresh: bool
) -> None:
    for process in ("me", "you", "them"):
        sleep(own, process=process)
    store.run(store.messages.offer_many(QUEUE, fresh(n) if is_fresh else [Draft(f"k{i:04d}", b"") for i in range(n)]))
    assert listener.received() == ["q/"]


def test_what_is_due_after_the_head_sends_nothing(
    store: PostgresStore, own: psycopg.Connection[Any], listener: ListenConnection
) -> None:
    store.run(store.messages.offer(QUEUE, Draft("head", b"", after=timedelta(seconds=30))))
    assert sleep(own, HOUR).due_in == pytest.approx(timedelta(seconds=30), abs=timedelta(seconds=20))
    store.run(store.messages.offer(QUEUE, Draft("later", b"", after=timedelta(seconds=40))))
    store.run(store.messages.offer(QUEUE, Draft("much later", b"", after=HOUR)))
    store.run(store.messages.offer_many(QUEUE, fresh(3, after=MINUTE)))
    store.run(store.messages.offer_many(QUEUE, fresh(2_000, after=MINUTE)))
    assert listener.received() == []
    store.run(store.messages.offer(QUEUE, Draft("earlier", b"", after=timedelta(seconds=1))))
    assert listener.received() == ["q/"]


def test_what_is_due_after_the_sleeper_looks_anyway_sends_nothing(
    store: PostgresStore, own: psycopg.Connection[Any], listener: ListenConnection
) -> None:
    sleep(own, MINUTE)
    store.run(store.messages.offer(QUEUE, Draft("later", b"", after=3 * MINUTE)))
    assert listener.received() == []


@pytest.mark.parametrize(("nap_s", "next_nap_s", "due_s"), [(10, 40, 45), (60, 60, 110)])
def test_an_offer_whose_transaction_spans_the_renewal_of_a_sleep_wakes_the_sleeper(
    store: PostgresStore,
    own: psycopg.Connection[Any],
    listener: ListenConnection,
    database: str,
    nap_s: int,
    next_nap_s: int,
    due_s: int,
) -> None:
    """The renewal cannot see the message, and the offer saw the row before the renewal. Without a notification the consumer
    sleeps past the due time."""
    sleep(own, timedelta(seconds=nap_s))
    with psycopg.connect(database) as conn:
        store.run(store.messages.offer(QUEUE, Draft("a", b"", after=timedelta(seconds=due_s))), conn=conn)
        assert sleep(own, timedelta(seconds=next_nap_s)).due_in is None
        own.commit()
        assert listener.received() == []
        conn.commit()
    assert listener.received() == ["q/"]


def test_an_offer_that_changes_nothing_sends_nothing(
    store: PostgresStore, own: psycopg.Connection[Any], listener: ListenConnection
) -> None:
    at = datetime.now(UTC) + timedelta(seconds=50)
    store.run(store.messages.offer(QUEUE, Draft("a", b"", due_at=at)))
    sleep(own, timedelta(seconds=10))
    store.run(store.messages.offer(QUEUE, Draft("a", b"", due_at=at)))
    assert listener.received() == []


def test_a_sleeper_whose_time_has_passed_is_dead_or_looking(
    store: PostgresStore, own: psycopg.Connection[Any], listener: ListenConnection
) -> None:
    sleep(own)
    own.execute("update tarry.waiter set wakes_at = clock_timestamp() - interval '1 second'")
    store.run(store.messages.offer(QUEUE, Draft("a", b"")))
    store.run(store.messages.offer(QUEUE, Draft("past", b"", due_at=datetime.now(UTC) - HOUR)))
    store.run(store.messages.offer_many(QUEUE, fresh(2_000)))
    assert listener.received() == []


def test_for_a_second_after_its_time_a_sleeper_is_woken_for_what_is_due_at_once(
    store: PostgresStore, own: psycopg.Connection[Any], listener: ListenConnection
) -> None:
    """It has looked, and is about to sleep again: what is committed just now it may not have seen."""
    sleep(own)
    own.execute("update tarry.waiter set wakes_at = clock_timestamp() - interval '10 ms'")
    store.run(store.messages.offer(QUEUE, Draft("later", b"", after=timedelta(seconds=1))))
    assert listener.received() == []
    for offer in ([Draft("now", b"")], fresh(1), fresh(2_000)):
        own.execute("update tarry.waiter set wakes_at = clock_timestamp()")
        store.run(store.messages.offer_many(QUEUE, offer))
        assert listener.received() == ["q/"]


def test_a_message_with_a_type_notifies_sleepers_of_that_type(
    store: PostgresStore, own: psycopg.Connection[Any], listener: ListenConnection
) -> None:
    for type in ("x", "y"):
        sleep(own, type=type)
    store.run(store.messages.offer(QUEUE, Draft("none", b"")))
    store.run(store.messages.offer_many(QUEUE, fresh(1) + fresh(2)))
    store.run(store.messages.offer_many(QUEUE, fresh(2_001)))
    assert listener.received() == []
    store.run(store.messages.offer(QUEUE, Draft("x", b"", type="x")))
    assert listener.received() == ["q/x"]
    store.run(store.messages.offer_many(QUEUE, [Draft("x2", b"", type="x"), Draft("y", b"", type="y")]))
    assert sorted(listener.received()) == ["q/x", "q/y"]


def test_settling_notifies_when_a_message_becomes_deliverable_earlier(
    store: PostgresStore, own: psycopg.Connection[Any], listener: ListenConnection
) -> None:
    store.run(store.messages.offer_many(QUEUE, [Draft(key, b"", type="t") for key in "abcd"]))
    a, b, c, d = store.run(store.messages.poll(QUEUE, 4, lambda data, _: data, PollOptions(lease_for=HOUR)))
    sleep(own)
    sleep(own, type="t")
    store.run(store.messages.touch(QUEUE, [a.lease_id]))
    store.run(store.messages.ack(QUEUE, [a.lease_id]))
    store.run(store.messages.nack(QUEUE, [Failure(b.lease_id, after=HOUR)]))
    store.run(store.messages.bury(QUEUE, [c.lease_id]))
    assert listener.received() == []
    store.run(store.messages.release(QUEUE, [d.lease_id]))
    assert sorted(listener.received()) == ["q/", "q/t"]
    assert store.run(store.dead_letters.redrive(QUEUE)) == 1
    assert sorted(listener.received()) == ["q/", "q/t"]
    (held, *_) = store.run(store.messages.poll(QUEUE, 1, lambda data, _: data))
    store.run(store.messages.nack(QUEUE, [Failure(held.lease_id, after=timedelta(seconds=1))]))
    assert sorted(listener.received()) == ["q/", "q/t"]


def test_resuming_notifies_and_pausing_does_not(
    store: PostgresStore, own: psycopg.Connection[Any], listener: ListenConnection
) -> None:
    store.run(store.messages.offer(QUEUE, Draft("a", b"", after=HOUR)))
    sleep(own)
    store.run(store.queues.pause(QUEUE))
    assert listener.received() == []
    store.run(store.queues.resume(QUEUE))
    assert listener.received() == ["q/"]
    store.run(store.queues.resume(QUEUE))
    assert listener.received() == []


def test_a_write_of_the_sink_notifies_each_queue_with_a_sleeper(
    database: str, store: PostgresStore, own: psycopg.Connection[Any], listener: ListenConnection
) -> None:
    sleep(own)
    sleep(own, type="t")
    offered(database, [[row(QUEUE, "later", after=HOUR), row("other", "a")]])
    assert listener.received() == []
    offered(database, [[row(QUEUE, "a"), row(QUEUE, "b")], [row("other", "b", type="t")]])
    assert listener.received() == ["q/"]
    offered(database, [[row(QUEUE, "c", type="t")]])
    assert sorted(listener.received()) == ["q/", "q/t"]


@pytest.mark.parametrize(("messages", "named"), [(1, 5), (10, 14), (100, 32)])
def test_of_many_sleepers_a_few_are_named(
    store: PostgresStore, listener: ListenConnection, own: psycopg.Connection[Any], messages: int, named: int
) -> None:
    for n in range(200):
        sleep(own, process=f"p{n}")
    own.commit()
    chosen: set[str] = set()
    for round in range(3):
        drafts = [Draft(f"{round}-{i}", b"", fresh=True) for i in range(messages)]
        store.run(store.messages.offer_many(QUEUE, drafts))
        (payload,) = listener.received()
        queue, seconds, *names = payload.removesuffix("/").split(",")
        assert (queue, float(seconds), len(set(names))) == (QUEUE, pytest.approx(200 / 4 / named, abs=0.05), named)
        chosen |= {*names}
    assert len(chosen) > named, "not the same ones every time"


def test_where_no_more_sleep_than_are_needed_all_are_woken(
    store: PostgresStore, listener: ListenConnection, own: psycopg.Connection[Any]
) -> None:
    for n in range(5):
        sleep(own, process=f"p{n}")
    own.commit()
    store.run(store.messages.offer(QUEUE, Draft("a", b"")))
    assert listener.received() == [f"{QUEUE}/"]


def test_other_queues_are_not_notified(
    store: PostgresStore, own: psycopg.Connection[Any], listener: ListenConnection
) -> None:
    sleep(own)
    store.run(store.messages.offer("other", Draft("a", b"")))
    assert listener.received() == []


def test_a_sleeper_behind_a_thousand_leases_looks_again_after_one_scan(
    store: PostgresStore, own: psycopg.Connection[Any]
) -> None:
    """What waits behind them cannot be seen from the head, and must not wait for the first of their leases to end."""
    store.run(store.messages.offer_many(QUEUE, [Draft(f"k{i:04d}", b"") for i in range(1_000)]))
    assert len(store.run(store.messages.poll(QUEUE, 1_000, lambda data, _: data, PollOptions(lease_for=HOUR)))) == 1_000
    assert sleep(own).due_in == pytest.approx(timedelta(seconds=1), abs=timedelta(milliseconds=1))


def test_sleeping_again_changes_the_row_in_place(store: PostgresStore, own: psycopg.Connection[Any]) -> None:
    for _ in range(50):
        sleep(own)
    own.execute("select pg_stat_force_next_flush()")
    query = "select n_tup_ins, n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = 'waiter'"
    assert own.execute(query).fetchone() == (1, 49, 49)


def test_a_process_deletes_its_announcement_unless_it_has_just_renewed_it(
    store: PostgresStore, own: psycopg.Connection[Any]
) -> None:
    def rows() -> list[Any]:
        return own.execute("select process, type from tarry.waiter order by 1, 2").fetchall()

    sleep(own)
    sleep(own, type="t")
    sleep(own, process="you")
    drive(own, leave("me", QUEUE, None).run())
    assert len(rows()) == 3
    own.execute("update tarry.waiter set renewed_at = renewed_at - interval '2 seconds'")
    drive(own, leave("me", QUEUE, None).run())
    assert rows() == [("me", "t"), ("you", "")]
    drive(own, leave("me").run())
    assert rows() == [("you", "")]
    drive(own, delete_stale_waiters().run())
    assert rows() == [("you", "")]
    own.execute(
        "update tarry.waiter set wakes_at = now() - interval '2 hours', renewed_at = now() - interval '2 hours'"
    )
    drive(own, delete_stale_waiters().run())
    assert rows() == []
