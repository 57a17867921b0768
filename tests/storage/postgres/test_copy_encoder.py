"""Large batches of new messages go by COPY, with the same rows as by INSERT."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import psycopg
import pytest
from msgspec.structs import replace
from psycopg.adapt import Dumper
from psycopg.pq import Format

from tarry.core.journal.events import JournalLevel
from tarry.core.messages.model import KEEP, Draft
from tarry.core.messages.outcomes import Outcome
from tarry.core.settings import QueueSettings, RetrySettings, StoreSettings
from tarry.storage.postgres import copy_encoder
from tarry.storage.postgres._sync.runner import drive, transaction
from tarry.storage.postgres._sync.store import PostgresStore
from tarry.storage.postgres.copy_encoder import Reserved
from tarry.storage.postgres.messages import operations as ops
from tarry.storage.postgres.statement import Copy, sql
from tests.kit.clocks import START, WatchedClock

QUEUE = "copied"
N = ops.COPY_FROM
# What differs between any two offers: numbers that are never given out twice.
_ROWS = """
    select to_jsonb(m) - 'version' - 'queue', row_number() over (order by version) as place
    from tarry.message m where queue = (select id from tarry.queue where name = %s) order by version
"""
_EVENTS = """
    select to_jsonb(e) - 'id' - 'xid' - 'version' - 'queue' from tarry.event e
    where kind = 'offered' and queue = (select id from tarry.queue where name = %s) order by version
"""


@pytest.fixture
def store(database: str) -> Iterator[PostgresStore]:
    store = PostgresStore(database, clock=WatchedClock(), settings=StoreSettings(connection_retry=RetrySettings.none()))
    yield store
    store.close()


def drafts(*, fresh: bool, n: int = N) -> list[Draft]:
    """Of every kind that COPY takes: payloads of all sizes, all priorities, due at an instant, after a while, or now."""
    return [
        Draft(
            key=f"key-{i:06d}-ä",
            payload=bytes([i % 256]) * (i % 700),
            content_type=(None, "text/plain", "application/octet-stream")[i % 3],
            due_at=START + timedelta(days=i, microseconds=i) if i % 4 == 0 else None,
            after=timedelta(0) if i % 2 == 0 else timedelta(days=i % 3650, milliseconds=i * 17),
            priority=i % 10,
            fresh=fresh,
        )
        for i in range(n)
    ]


def stored(dsn: str, queue: str) -> tuple[list[Any], list[Any]]:
    with psycopg.connect(dsn) as conn:
        return conn.execute(_ROWS, (queue,)).fetchall(), conn.execute(_EVENTS, (queue,)).fetchall()


class ReservedRow(NamedTuple):
    queue: int
    journal: str
    now: datetime
    versions: list[int]


def copies(batch: list[Draft]) -> bool:
    """Whether a batch goes by COPY."""
    op = ops.offer_many(QUEUE, batch, START)
    step = next(op)
    if step.sql != sql("messages/reserve"):
        return False
    return isinstance(op.send([ReservedRow(1, "events", START, list(range(len(batch))))]), Copy)


@pytest.mark.parametrize("level", JournalLevel)
def test_copied_messages_and_events_equal_those_of_ordinary_offers(
    database: str, store: PostgresStore, level: JournalLevel
) -> None:
    for name, fresh in (("copied", True), ("ordinary", False)):
        store.run(store.queues.create(name, QueueSettings(journal=level), exist_ok=False))
        assert store.run(store.messages.offer_many(name, drafts(fresh=fresh))) == [Outcome.CREATED] * N
    copied, ordinary = stored(database, "copied"), stored(database, "ordinary")
    assert len(copied[0]) == N
    assert len(copied[1]) == (0 if level is JournalLevel.OFF else N)
    assert copied == ordinary


def test_a_batch_of_new_messages_goes_by_copy_and_any_other_does_not() -> None:
    assert copies(drafts(fresh=True))
    assert not copies(drafts(fresh=True, n=N - 1))
    assert not copies(drafts(fresh=False))
    for change in ({"type": "t"}, {"headers": {"a": "b"}}, {"lease_for": timedelta(seconds=5)}, {"max_attempts": 3}):
        assert not copies([*drafts(fresh=True), replace(Draft("odd", b"", fresh=True), **change)])


def test_offer_if_absent_leaves_the_same_row_by_copy(database: str, store: PostgresStore) -> None:
    for name, fresh in (("copied", True), ("ordinary", False)):
        store.run(store.messages.offer_many(name, [replace(draft, conflict=KEEP) for draft in drafts(fresh=fresh)]))
    assert stored(database, "copied") == stored(database, "ordinary")


def test_copied_messages_are_leased_in_order_and_settled_as_any_other(store: PostgresStore) -> None:
    batch = [Draft(f"k{i:05d}", b"%d" % i, priority=i % 3, fresh=True) for i in range(N)]
    store.run(store.messages.offer_many(QUEUE, batch))
    leases = store.run(store.messages.poll(QUEUE, N, lambda data, _: data))
    assert [lease.key for lease in leases] == [d.key for p in (2, 1, 0) for d in batch if d.priority == p]
    assert len(store.run(store.messages.ack(QUEUE, [lease.lease_id for lease in leases]))) == N
    assert store.run(store.queues.counts(QUEUE)).leased.n == 0


def test_a_failure_in_the_middle_leaves_nothing(database: str, store: PostgresStore) -> None:
    """The last message is one that the table refuses."""
    store.run(store.queues.create(QUEUE, QueueSettings(), exist_ok=False))
    with pytest.raises(psycopg.errors.CheckViolation):
        store.run(store.messages.offer_many(QUEUE, [*drafts(fresh=True), Draft("bad", b"", priority=11, fresh=True)]))
    assert stored(database, QUEUE) == ([], [])


def test_a_failure_of_the_journal_takes_the_messages_with_it(database: str, store: PostgresStore) -> None:
    store.run(store.queues.create(QUEUE, QueueSettings(), exist_ok=False))
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("alter table tarry.event add check (key is distinct from 'key-001999-ä')")
    with pytest.raises(psycopg.errors.CheckViolation):
        store.run(store.messages.offer_many(QUEUE, drafts(fresh=True)))
    assert stored(database, QUEUE) == ([], [])


def test_a_stream_that_breaks_off_leaves_nothing(database: str, store: PostgresStore) -> None:
    """Whatever goes wrong on our side while we stream: the server must not keep half of it."""
    store.run(store.queues.create(QUEUE, QueueSettings(), exist_ok=False))

    def broken() -> Any:
        op = ops.offer_many(QUEUE, drafts(fresh=True), None)
        step = next(op)
        while True:
            if isinstance(step, Copy) and "tarry.event" in step.sql:
                raise ZeroDivisionError
            step = op.send((yield step))

    with psycopg.connect(database, autocommit=True) as conn:
        with pytest.raises(ZeroDivisionError), transaction(conn):
            drive(conn, broken())
        assert conn.info.transaction_status is psycopg.pq.TransactionStatus.IDLE
    assert stored(database, QUEUE) == ([], [])


def test_a_batch_by_copy_in_the_callers_transaction_is_the_callers(database: str, store: PostgresStore) -> None:
    store.run(store.queues.create(QUEUE, QueueSettings(), exist_ok=False))
    with psycopg.connect(database) as conn:
        store.run(store.messages.offer_many(QUEUE, drafts(fresh=True)), conn=conn)
        assert stored(database, QUEUE) == ([], [])
        conn.rollback()
        assert stored(database, QUEUE) == ([], [])
        store.run(store.messages.offer_many(QUEUE, drafts(fresh=True)), conn=conn)
        conn.commit()
    assert len(stored(database, QUEUE)[0]) == N


def test_a_dumper_of_the_caller_does_not_encode_copied_rows(database: str, store: PostgresStore) -> None:
    class Theirs:
        pass

    class TheirDumper(Dumper):
        format = Format.BINARY
        oid = psycopg.postgres.types["text"].oid

        def dump(self, obj: object) -> bytes:
            return b"theirs"

    store.run(store.queues.create(QUEUE, QueueSettings(), exist_ok=False))
    with psycopg.connect(database) as conn:
        conn.adapters.register_dumper(Theirs, TheirDumper)
        store.run(store.messages.offer_many(QUEUE, drafts(fresh=True)), conn=conn)
        assert conn.execute("select %b::text", (Theirs(),)).fetchone() == ("theirs",)
    assert [row["key"] for row, _ in stored(database, QUEUE)[0]] == [draft.key for draft in drafts(fresh=True)]


def test_a_row_is_made_with_few_calls() -> None:
    """The driver encodes it in C."""
    reserved = Reserved(1, "events", START, range(1, 1 + 100))
    batch = [Draft(f"k{i}", b"x", fresh=True) for i in range(100)]
    called: list[str] = []

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            called.append(frame.f_code.co_name)

    copies = (copy_encoder.copy_messages(batch, reserved), copy_encoder.copy_events(batch, reserved))
    sys.setprofile(note)
    try:
        for copy in copies:
            for _ in copy.rows:
                pass
    finally:
        sys.setprofile(None)
    assert set(called) == {"rows", "due_us"}
    assert len(called) <= (2 + 2) * 100 + 10
