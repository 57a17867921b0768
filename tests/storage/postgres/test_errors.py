"""Which errors pass by themselves and are tried again, which are raised at once, and for how long we try."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import errors, sql
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import PoolTimeout

from tarry.core.errors import InvalidState, SchemaMismatch, StoreUnavailable, TarryError
from tarry.core.messages.model import Draft
from tarry.core.messages.outcomes import Outcome
from tarry.core.settings import RetrySettings, StoreSettings
from tarry.storage.postgres import store as aio
from tarry.storage.postgres._sync import store as sync
from tarry.storage.postgres._sync.store import PostgresStore
from tarry.storage.postgres.errors import LOCK_PAUSE_S, is_transient, translated
from tarry.storage.postgres.fencing import Fence
from tarry.storage.postgres.store import AsyncPostgresStore

QUEUE = "tried"
PASSING = [
    errors.DeadlockDetected("40P01"),
    errors.SerializationFailure("40001"),
    errors.AdminShutdown("57P01"),
    errors.CrashShutdown("57P02"),
    errors.CannotConnectNow("57P03"),
    errors.TooManyConnections("53300"),
    errors.ProtocolViolation("08P01: server conn crashed?"),
    errors.ConnectionFailure("08006"),
    PoolTimeout("no connection in time"),
    psycopg.OperationalError("connection refused"),
    psycopg.OperationalError("server closed the connection unexpectedly"),
    psycopg.InterfaceError("the connection is closed"),
]
LASTING = [
    errors.SyntaxError("42601"),
    errors.CheckViolation("23514"),
    errors.UniqueViolation("23505"),
    errors.NotNullViolation("23502"),
    errors.UndefinedTable("42P01"),
    errors.InsufficientPrivilege("42501"),
    errors.DiskFull("53100"),
    errors.OutOfMemory("53200"),
    errors.InvalidTextRepresentation("22P02"),
    errors.ReadOnlySqlTransaction("25006"),
    errors.QueryCanceled("57014"),
]


def name_of(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


class Flaky:
    """Stands between a store and its connections: the first few statements fail, as the test defines."""

    def __init__(self, failures: list[BaseException]) -> None:
        self.failures = failures
        self.calls = 0
        self.pauses: list[float] = []

    def next_failure(self) -> BaseException | None:
        self.calls += 1
        return self.failures.pop(0) if self.failures else None


Tried = Callable[[Flaky, RetrySettings], Any]


def is_fence(op: Any) -> bool:
    """Whether this ends the session of the try before, which is no try of its own."""
    return op.__qualname__ == Fence.close.__qualname__


@pytest.fixture(params=["blocking", "awaiting"])
def tried(request: pytest.FixtureRequest, database: str, monkeypatch: pytest.MonkeyPatch) -> Tried:
    """Offer one message through a store whose statements fail, and give back the outcome."""

    def blocking(flaky: Flaky, connection_retry: RetrySettings) -> Outcome:
        real = sync.drive

        def drive(conn: Any, op: Any, **kwargs: Any) -> Any:
            if not is_fence(op) and (failure := flaky.next_failure()):
                raise failure
            return real(conn, op, **kwargs)

        monkeypatch.setattr(sync, "drive", drive)
        settings = StoreSettings(connection_retry=connection_retry)
        store = PostgresStore(database, settings=settings, sleep=flaky.pauses.append)
        try:
            return store.run(store.messages.offer(QUEUE, Draft("k", b"")))
        finally:
            store.close()

    async def awaiting(flaky: Flaky, connection_retry: RetrySettings) -> Outcome:
        real = aio.drive

        async def drive(conn: Any, op: Any, **kwargs: Any) -> Any:
            if not is_fence(op) and (failure := flaky.next_failure()):
                raise failure
            return await real(conn, op, **kwargs)

        async def nap(seconds: float) -> None:
            flaky.pauses.append(seconds)
            await asyncio.sleep(0)

        store = AsyncPostgresStore(database, settings=StoreSettings(connection_retry=connection_retry), sleep=nap)
        await store.open()
        monkeypatch.setattr(aio, "drive", drive)
        try:
            return (await store.run(store.messages.offer_many(QUEUE, [Draft("k", b"")])))[0]
        finally:
            await store.close()

    def run(flaky: Flaky, connection_retry: RetrySettings) -> Any:
        return (
            blocking(flaky, connection_retry)
            if request.param == "blocking"
            else asyncio.run(awaiting(flaky, connection_retry))
        )

    return run


@pytest.mark.parametrize("error", PASSING, ids=name_of)
def test_what_passes_by_itself_is_tried_again(tried: Tried, error: psycopg.Error) -> None:
    flaky = Flaky([error, error])
    assert tried(flaky, RetrySettings()) is Outcome.CREATED
    assert flaky.calls == 3
    assert flaky.pauses == [0.1, 0.2]


@pytest.mark.parametrize("error", LASTING, ids=name_of)
def test_what_does_not_pass_is_raised_at_once(tried: Tried, error: psycopg.Error) -> None:
    flaky = Flaky([error])
    with pytest.raises((type(error), SchemaMismatch, InvalidState, StoreUnavailable)):
        tried(flaky, RetrySettings())
    assert flaky.calls == 1
    assert flaky.pauses == []


def test_a_lock_of_another_transaction_is_tried_again_without_using_up_retries(tried: Tried) -> None:
    """Until `lock_for` is over: see test_locks.py."""
    flaky = Flaky([errors.LockNotAvailable("55P03")] * 3)
    assert tried(flaky, RetrySettings(retries=1)) is Outcome.CREATED
    assert flaky.calls == 4
    assert flaky.pauses == [LOCK_PAUSE_S] * 3


def test_trying_ends_after_the_retries_allowed(tried: Tried) -> None:
    flaky = Flaky([psycopg.OperationalError("connection refused")] * 100)
    with pytest.raises(StoreUnavailable, match="also not after 5 more tries: connection refused") as raised:
        tried(flaky, RetrySettings())
    assert flaky.calls == 6
    assert flaky.pauses == [0.1, 0.2, 0.4, 0.8, 1.6]
    assert raised.value.hint is not None
    assert "tarry doctor" in raised.value.hint
    assert isinstance(raised.value, ConnectionError)


def test_trying_ends_when_the_time_allowed_would_be_over(tried: Tried) -> None:
    flaky = Flaky([psycopg.OperationalError("connection refused")] * 100)
    connection_retry = RetrySettings(retries=1_000, initial_for=timedelta(hours=1), cap_for=timedelta(hours=1))
    with pytest.raises(StoreUnavailable, match="the database cannot be reached: connection refused"):
        tried(flaky, connection_retry)
    assert flaky.calls == 1


def test_without_retries_everything_is_tried_once(tried: Tried) -> None:
    flaky = Flaky([errors.DeadlockDetected("40P01")])
    with pytest.raises(StoreUnavailable):
        tried(flaky, RetrySettings.none())
    assert flaky.calls == 1


def test_our_own_errors_are_not_retried(tried: Tried) -> None:
    flaky = Flaky([TarryError("no")])
    with pytest.raises(TarryError, match="no"):
        tried(flaky, RetrySettings())
    assert flaky.calls == 1


def test_pauses_grow_to_a_limit() -> None:
    connection_retry = RetrySettings(initial_for=timedelta(milliseconds=100), cap_for=timedelta(seconds=1))
    assert [connection_retry.pause(n) / timedelta(milliseconds=1) for n in range(1, 7)] == [
        100,
        200,
        400,
        800,
        1000,
        1000,
    ]
    assert connection_retry.pause(10_000) == timedelta(seconds=1)


@pytest.mark.parametrize("kind", [errors.UndefinedTable, errors.InvalidSchemaName, errors.UndefinedColumn])
def test_missing_tables_are_reported_as_missing_migrations(kind: type[psycopg.Error]) -> None:
    named = translated(kind("missing"), 1)
    assert isinstance(named, SchemaMismatch)
    assert named.hint is not None
    assert "tarry db migrate" in named.hint


@pytest.mark.parametrize(
    ("error", "named", "hint"),
    [
        (errors.DiskFull("no space left on device"), StoreUnavailable, "make room"),
        (errors.OutOfMemory("out of memory"), StoreUnavailable, "make room"),
        (errors.ReadOnlySqlTransaction("cannot execute INSERT"), StoreUnavailable, "primary"),
        (errors.InsufficientPrivilege("permission denied"), InvalidState, "tarry doctor"),
    ],
    ids=name_of,
)
def test_a_problem_of_the_server_is_reported_with_a_hint(
    error: psycopg.Error, named: type[TarryError], hint: str
) -> None:
    """As the store being away, where it is: then loops try again later, and the broker answers 503."""
    raised = translated(error, 1)
    assert isinstance(raised, named)
    assert str(error) in str(raised)
    assert hint in str(raised.hint)


def test_a_database_that_was_made_read_only_is_as_good_as_away(database: str) -> None:
    name = sql.Identifier(str(conninfo_to_dict(database)["dbname"]))
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(sql.SQL("alter database {} set default_transaction_read_only = on").format(name))
    store = PostgresStore(database)
    with pytest.raises(StoreUnavailable, match="takes no changes"):
        store.run(store.messages.offer(QUEUE, Draft("k", b"")))
    store.close()


def test_an_error_that_we_cannot_explain_better_stays_what_it_is() -> None:
    error = errors.CheckViolation("no")
    assert translated(error, 1) is error
    assert not is_transient(error)


def test_a_closed_store_raises_at_once(database: str) -> None:
    """A retry cannot help, and the database is not unavailable."""
    pauses: list[float] = []
    store = PostgresStore(database, sleep=pauses.append)
    store.close()
    with pytest.raises(InvalidState, match="this store is closed"):
        store.run(store.messages.offer(QUEUE, Draft("k", b"")))
    assert pauses == []
