"""`conn=`: every verb can be part of the caller's own transaction, and then holds only if the caller commits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tarry import Message, Outcome, Queue, QueueSettings, Settled
from tarry.app import App
from tarry.core.errors import InvalidInput, UnknownQueue
from tarry.core.limits import PURGE_CONFIRMATION
from tarry.core.messages.model import Failure, LeaseId
from tests.kit.backends import MEMORY, POSTGRES, Backend, new_name
from tests.kit.callers import Caller
from tests.kit.clocks import START, WatchedClock
from tests.kit.steps import EMPTY, MINUTE, SECOND, numbers, seen, take


@pytest.mark.parametrize("backend", POSTGRES, indirect=True)
class TestInATransaction:
    @pytest.fixture
    def caller(self, backend: Backend) -> Iterator[Caller]:
        with backend.caller() as caller:
            yield caller

    def test_an_offer_is_seen_by_others_only_after_the_commit(self, queue: Queue[Any], caller: Caller) -> None:
        queue.offer("before", 1, after=MINUTE)
        assert queue.offer("a", 1, conn=caller.conn) is Outcome.CREATED
        assert (queue.contains("a"), queue.contains("a", conn=caller.conn)) == (False, True)
        assert queue.try_poll() is None
        caller.commit()
        assert take(queue).key == "a"

    def test_a_rolled_back_offer_never_was(self, app: App, queue: Queue[Any], caller: Caller) -> None:
        queue.offer_many([Message(key="a", payload=1), Message(key="b", payload=1)], conn=caller.conn)
        caller.rollback()
        assert numbers(app, queue) == EMPTY
        assert app.store.run(app.store.journal.timeline(queue.name, "a")) == []

    def test_offer_and_own_data_commit_together_or_not_at_all(self, queue: Queue[Any], caller: Caller) -> None:
        table = f"invoice_{uuid4().hex}"
        create: Any = f"create temp table {table} (key text)"
        insert: Any = f"insert into {table} values (%s)"
        count: Any = f"select count(*) from {table}"
        caller.execute(create)
        caller.commit()
        for key, end in [("kept", caller.commit), ("lost", caller.rollback)]:
            caller.execute(insert, key)
            queue.offer(key, 1, conn=caller.conn)
            end()
        assert caller.execute(count) == [(1,)]
        assert (queue.contains("kept"), queue.contains("lost")) == (True, False)

    def test_an_ack_counts_only_if_the_caller_commits(
        self, queue: Queue[Any], caller: Caller, clock: WatchedClock
    ) -> None:
        queue.offer("a", 1)
        delivery = take(queue)
        assert delivery.ack(conn=caller.conn) is Settled.DONE
        caller.rollback()
        assert queue.contains("a")
        clock.advance(MINUTE)
        again = take(queue)
        assert again.ack(conn=caller.conn) is Settled.DONE
        caller.commit()
        assert not queue.contains("a")

    def test_a_lease_of_a_transaction_that_rolls_back_was_never_granted(
        self, queue: Queue[Any], caller: Caller
    ) -> None:
        queue.offer("a", 1)
        delivery = take(queue, conn=caller.conn)
        assert queue.try_poll() is None
        caller.rollback()
        assert delivery.ack() is Settled.LEASE_LOST
        assert take(queue).attempt == 1

    def test_poll_work_and_ack_in_one_transaction(self, app: App, queue: Queue[Any], caller: Caller) -> None:
        queue.offer_many([Message(key=key, payload=key) for key in "abc"])
        deliveries = queue.try_poll_many(3, conn=caller.conn)
        assert queue.leases.ack([d.lease_id for d in deliveries], conn=caller.conn) == [Settled.DONE] * 3
        caller.commit()
        assert numbers(app, queue) == EMPTY

    @pytest.mark.parametrize("end", ["commit", "rollback"])
    def test_every_way_to_settle(self, app: App, queue: Queue[Any], caller: Caller, end: str) -> None:
        queue.offer_many([Message(key=key, payload=0) for key in "abcd"])
        a, b, c, d = queue.try_poll_many(4)
        outcomes = [
            a.nack("failed", after=MINUTE, conn=caller.conn),
            b.release(conn=caller.conn),
            c.bury("hopeless", conn=caller.conn),
            d.touch(MINUTE, conn=caller.conn),
        ]
        assert outcomes == [Settled.DONE] * 4
        getattr(caller, end)()
        assert numbers(app, queue) == ((1, 1, 1, 1) if end == "commit" else (0, 0, 4, 0))
        assert seen(queue, "d").lease_until == START + (MINUTE if end == "commit" else 30 * SECOND)

    def test_looking_and_removing(self, app: App, queue: Queue[Any], caller: Caller) -> None:
        conn = caller.conn
        queue.offer_many([Message(key=key, payload=0) for key in "abc"], conn=conn)
        message = queue.read("a", conn=conn)
        assert message is not None
        assert queue.drop("a", version=message.version, conn=conn)
        assert app.queues.counts(queue.name, conn=conn).ready.n == 2
        assert len(app.store.run(app.store.messages.list(queue.name), conn=conn)) == 2
        assert len(app.store.run(app.store.journal.timeline(queue.name, "a"), conn=conn)) == 2
        take(queue, conn=conn).bury(conn=conn)
        assert len(queue.dead_letters.list(conn=conn)) == 1
        assert queue.dead_letters.redrive(conn=conn) == 1
        assert queue.dead_letters.discard(conn=conn) == 0
        assert queue.purge(PURGE_CONFIRMATION, conn=conn) == 2
        caller.rollback()
        assert numbers(app, queue) == EMPTY

    def test_queues_themselves(self, app: App, caller: Caller) -> None:
        name, conn = new_name(), caller.conn
        app.queues.create(name, QueueSettings(max_attempts=2), conn=conn)
        app.queues.edit(name, max_attempts=4, conn=conn)
        app.queues.pause(name, conn=conn)
        app.queues.resume(name, conn=conn)
        app.queues.rename(name, name + "2", conn=conn)
        assert app.queues.get(name + "2", conn=conn).settings.max_attempts == 4
        assert name + "2" in [info.name for info in app.queues.list(conn=conn)]
        app.queues.delete(name + "2", conn=conn)
        app.queues.create(name, conn=conn)
        caller.rollback()
        with pytest.raises(UnknownQueue):
            app.queues.get(name)

    def test_a_queue_that_is_created_by_its_first_use_blocks_no_other_caller(
        self, app: App, queue: Queue[Any], caller: Caller
    ) -> None:
        """It is made outside of the caller's transaction, which would lock its name against every other caller."""
        queue.offer("a", 1, conn=caller.conn)
        assert not queue.contains("a")
        caller.rollback()
        assert app.queues.get(queue.name).name == queue.name
        assert not queue.contains("a")

    def test_a_connection_that_commits_by_itself_is_as_good(self, backend: Backend, queue: Queue[Any]) -> None:
        with backend.caller(autocommit=True) as caller:
            queue.offer("a", 1, conn=caller.conn)
            assert take(queue, conn=caller.conn).ack(conn=caller.conn) is Settled.DONE

    def test_a_bad_input_leaves_the_transaction_usable(self, queue: Queue[Any], caller: Caller) -> None:
        queue.offer("a", 1, conn=caller.conn)
        with pytest.raises(InvalidInput):
            queue.offer("", 1, conn=caller.conn)
        queue.offer("b", 1, conn=caller.conn)
        caller.commit()
        assert (queue.contains("a"), queue.contains("b")) == (True, True)

    def test_the_callers_session_stays_as_it_was(self, queue: Queue[Any], caller: Caller) -> None:
        query: Any = "select name, setting from pg_settings order by name"
        before = caller.execute(query)
        queue.offer("a", 1, conn=caller.conn)
        take(queue, conn=caller.conn).ack(conn=caller.conn)
        assert caller.execute(query) == before
        assert caller.execute("select count(*) from pg_prepared_statements") == [(0,)]

    def test_a_large_batch_is_part_of_the_transaction(self, app: App, queue: Queue[Any], caller: Caller) -> None:
        fresh = [Message(payload=i) for i in range(2_100)]
        assert queue.offer_many(fresh, conn=caller.conn) == [Outcome.CREATED] * 2_100
        caller.rollback()
        assert numbers(app, queue) == EMPTY


@pytest.mark.parametrize("backend", MEMORY, indirect=True)
class TestInMemory:
    @pytest.mark.parametrize(
        "verb",
        [
            lambda queue, conn: queue.offer("a", 1, conn=conn),
            lambda queue, conn: queue.offer_many([], conn=conn),
            lambda queue, conn: queue.try_poll(conn=conn),
            lambda queue, conn: queue.try_poll_many(0, conn=conn),
            lambda queue, conn: queue.leases.ack([LeaseId("a", uuid4())], conn=conn),
            lambda queue, conn: queue.leases.nack([Failure(LeaseId("a", uuid4()))], conn=conn),
            lambda queue, conn: queue.read("a", conn=conn),
            lambda queue, conn: queue.drop("a", conn=conn),
            lambda queue, conn: queue.dead_letters.list(conn=conn),
        ],
    )
    def test_there_are_no_transactions_to_be_part_of(self, queue: Queue[Any], verb: Any) -> None:
        with pytest.raises(InvalidInput, match="memory"):
            verb(queue, object())


@pytest.mark.parametrize("backend", POSTGRES, indirect=True)
class TestWithoutATransaction:
    """A connection in autocommit mode, outside of any transaction: Django's outside of `atomic`."""

    @pytest.fixture
    def caller(self, backend: Backend) -> Iterator[Caller]:
        with backend.caller(autocommit=True) as caller:
            yield caller

    def test_a_batch_of_several_statements_is_stored_as_a_whole_or_not_at_all(
        self, backend: Backend, app: App, queue: Queue[Any], caller: Caller
    ) -> None:
        queue.offer("key-5999", 1)
        caller.execute("set lock_timeout = '100ms'")
        batch = [Message(key=f"key-{i}", payload=2) for i in range(6_000)]
        with backend.caller() as other:
            other.execute("select from tarry.message where key = 'key-5999' for update")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                queue.offer_many(batch, conn=caller.conn)
            other.rollback()
        assert app.queues.counts(queue.name).ready.n == 1
        assert set(queue.offer_many(batch, conn=caller.conn)) == {Outcome.CREATED, Outcome.UPDATED}
        assert app.queues.counts(queue.name).ready.n == 6_000

    def test_inside_a_transaction_of_the_caller_it_is_part_of_that(self, queue: Queue[Any], caller: Caller) -> None:
        caller.execute("begin")
        queue.offer_many([Message(key=f"key-{i}", payload=2) for i in range(2_000)], conn=caller.conn)
        caller.execute("rollback")
        assert not queue.contains("key-0")
