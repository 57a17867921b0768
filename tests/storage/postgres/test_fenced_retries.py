"""A server process freezes with a statement in its hands, and the connection to it is lost: what it does later must not
undo what was answered in the meantime."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tarry.core.errors import StoreUnavailable, UnknownQueue
from tarry.core.messages.model import Draft
from tarry.core.messages.outcomes import Outcome
from tarry.core.settings import QueueSettings, RetrySettings, StoreSettings
from tarry.storage.postgres import fencing
from tarry.storage.postgres._sync.store import PostgresStore
from tarry.storage.postgres.store import AsyncPostgresStore
from tests.kit.fault_proxy import proxied
from tests.kit.sleepers import until

OLD, NEW = Draft("k", b'"old"'), Draft("k", b'"new"')
SINGLE = StoreSettings(pool_size=1)
WARM: dict[str, tuple[Any, ...]] = {"offer": ("q", Draft("warm", b"2")), "drop": ("q", "warm"), "purge": ("q",)}


class Client:
    """A store of either kind with one connection, and the server process at the other end of it."""

    def __init__(self, dsn: str, kind: str, settings: StoreSettings) -> None:
        self._loop = asyncio.new_event_loop() if kind == "awaiting" else None
        made = PostgresStore if self._loop is None else AsyncPostgresStore
        self.store: Any = made(dsn, settings=settings)
        if self._loop is not None:
            self._loop.run_until_complete(self.store.open())

    def run(self, verb: str, *args: Any) -> Any:
        return self._awaited(self.store.run(getattr(self.store.messages, verb)(*args)))

    def close(self) -> None:
        self._awaited(self.store.close())
        if self._loop is not None:
            self._loop.close()

    def _awaited(self, result: Any) -> Any:
        return result if self._loop is None else self._loop.run_until_complete(result)


class Frozen(NamedTuple):
    first: Future[Any]
    pid: int
    client: Client


@contextmanager
def frozen_while(dsn: str, kind: str, verb: str, *args: Any, settings: StoreSettings = SINGLE) -> Iterator[Frozen]:
    """A verb is sent to a server process that is frozen, and the connection is cut. The process goes on after the block."""
    with proxied(dsn) as (proxy, through), ThreadPoolExecutor(max_workers=1) as thread:
        client = Client(through, kind, settings)
        client.run("offer", "q", Draft("warm", b"1"))
        client.run(verb, *WARM[verb])  # prepares its statement: the frozen process has only to execute it
        (pid,) = processes(dsn)
        os.kill(pid, signal.SIGSTOP)
        try:
            sent = proxy.requested
            future = thread.submit(client.run, verb, *args)
            until(lambda: proxy.requested > sent, "the statement was not sent")
            proxy.cut()
            yield Frozen(future, pid, client)
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
            until(lambda: pid not in processes(dsn), "the process does not end")
            client.close()


def processes(dsn: str) -> list[int]:
    with psycopg.connect(dsn, application_name="test", autocommit=True) as conn:
        rows = conn.execute(
            "select pid from pg_stat_activity where application_name = 'tarry' and datname = current_database()"
        )
        return [pid for (pid,) in rows]


def is_being_ended(dsn: str) -> bool:
    with psycopg.connect(dsn, application_name="test", autocommit=True) as conn:
        query = "select from pg_stat_activity where wait_event = 'BackendTermination' and datname = current_database()"
        return conn.execute(query).fetchone() is not None


@pytest.fixture
def other(database: str) -> Iterator[PostgresStore]:
    store = PostgresStore(make_conninfo(database, application_name="other"))
    yield store
    store.close()


KINDS = pytest.mark.parametrize("kind", ["blocking", "awaiting"])


@KINDS
def test_an_offer_that_was_frozen_does_not_replace_a_newer_confirmed_one(
    database: str, other: PostgresStore, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(fencing, "END_WITHIN_S", 0.5)
    with frozen_while(database, kind, "offer", "q", OLD) as (first, pid, _):
        with pytest.raises(StoreUnavailable, match=rf"(?s){pid}.*the outcome is unknown"):
            first.result()
        other.run(other.messages.offer("q", NEW))
    stored = other.run(other.messages.read("q", "k"))
    assert stored is not None
    assert stored.payload == NEW.payload


@KINDS
@pytest.mark.parametrize("verb", ["drop", "purge"])
def test_a_removal_that_was_frozen_deletes_nothing_that_was_accepted_later(
    database: str, other: PostgresStore, monkeypatch: pytest.MonkeyPatch, kind: str, verb: str
) -> None:
    monkeypatch.setattr(fencing, "END_WITHIN_S", 0.5)
    arguments = ("q", "k") if verb == "drop" else ("q",)
    with frozen_while(database, kind, verb, *arguments) as (first, _, _):
        with pytest.raises(StoreUnavailable):
            first.result()
        other.run(other.messages.offer("q", NEW))
    assert other.run(other.messages.contains("q", "k"))


@KINDS
def test_a_retry_waits_until_the_process_of_the_first_try_has_ended(
    database: str, other: PostgresStore, kind: str
) -> None:
    with frozen_while(database, kind, "offer", "q", OLD) as (first, pid, _):
        until(lambda: first.done() or is_being_ended(database), "the first try is not fenced")
        assert not first.done()
        os.kill(pid, signal.SIGCONT)
        assert first.result() is Outcome.CREATED
        assert other.run(other.messages.offer("q", NEW)) is Outcome.UPDATED
    assert [event.kind.value for event in other.run(other.journal.timeline("q", "k"))] == ["offered", "updated"]


def test_a_first_try_without_a_retry_is_ended_by_the_next_operation_of_the_store(
    database: str, other: PostgresStore
) -> None:
    settings = StoreSettings(pool_size=1, connection_retry=RetrySettings.none())
    with frozen_while(database, "blocking", "offer", "q", OLD, settings=settings) as frozen:
        with pytest.raises(StoreUnavailable):
            frozen.first.result()
        frozen.client.run("offer", "q", NEW)
    stored = other.run(other.messages.read("q", "k"))
    assert stored is not None
    assert stored.payload == NEW.payload


def test_a_session_that_could_not_be_ended_is_left_to_the_next_operation() -> None:
    first, second = (fencing.ServerSession(pid, datetime(2026, 1, 1, tzinfo=UTC)) for pid in (1, 2))
    left = [first, second]
    failing = fencing.Fence(left).close()
    next(failing)
    failing.send([(True,)])
    failing.close()  # the connection breaks before the second session is ended
    assert left == [second]
    closing = fencing.Fence(left).close()
    next(closing)
    with pytest.raises(StopIteration):
        closing.send([(True,)])
    assert left == []


@pytest.mark.parametrize("key", [None, "k"])
def test_an_offer_whose_queue_was_renamed_before_the_retry_is_stored_once_in_the_renamed_queue(
    database: str, other: PostgresStore, key: str | None
) -> None:
    settings = StoreSettings(pool_size=1, create_queues=False)
    with proxied(database) as (proxy, through), ThreadPoolExecutor(max_workers=1) as thread:
        other.run(other.queues.create("q", QueueSettings(), exist_ok=False))
        store = PostgresStore(through, settings=settings)
        store.run(store.messages.offer("q", Draft("warm", b"1", fresh=key is None)))  # prepares the statement
        proxy.swallow_replies()
        draft = Draft(key or "generated", b"1", fresh=key is None)
        first = thread.submit(store.run, store.messages.offer("q", draft))
        until(lambda: other.run(other.messages.contains("q", draft.key)), "the first try was not stored")
        other.run(other.queues.rename("q", "renamed"))
        proxy.cut()
        assert first.result() is (Outcome.CREATED if key is None else Outcome.UPDATED)
        store.close()
    assert [message.key for message in other.run(other.messages.list("renamed"))] == ["warm", draft.key]
    with pytest.raises(UnknownQueue):
        other.run(other.queues.info("q"))


def blocked_statements(dsn: str) -> set[tuple[Any, ...]]:
    """Which statements of a store wait for a lock at this moment."""
    with psycopg.connect(dsn, application_name="test", autocommit=True) as conn:
        query = (
            "select pid, query_start from pg_stat_activity "
            "where wait_event_type = 'Lock' and application_name = 'tarry' and datname = current_database()"
        )
        return set(conn.execute(query).fetchall())


@KINDS
def test_an_offer_whose_reply_was_lost_and_whose_retry_met_a_lock_is_stored_once(
    database: str, other: PostgresStore, kind: str
) -> None:
    other.run(other.queues.create("q", QueueSettings(), exist_ok=False))
    draft = Draft("generated", b"1", fresh=True)
    with (
        proxied(database) as (proxy, through),
        psycopg.connect(database, application_name="test") as foreign,
        ThreadPoolExecutor(max_workers=1) as thread,
    ):
        client = Client(through, kind, SINGLE)
        client.run("offer", "q", Draft("warm", b"1", fresh=True))
        proxy.swallow_replies()
        first = thread.submit(client.run, "offer", "q", draft)
        until(lambda: other.run(other.messages.contains("q", draft.key)), "the first try was not stored")
        foreign.execute("lock table tarry.message in share row exclusive mode")
        proxy.cut()
        seen: set[tuple[Any, ...]] = set()

        def met_it_twice() -> bool:
            seen.update(blocked_statements(database))
            return len(seen) >= 2

        until(met_it_twice, "the offer does not meet the lock again")
        foreign.rollback()
        assert first.result() is Outcome.CREATED
        client.close()
    assert [event.kind.value for event in other.run(other.journal.timeline("q", draft.key))] == ["offered"]
