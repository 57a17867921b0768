"""The connections that Django and SQLAlchemy make, with the settings that they are made with, are as good as a plain one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import psycopg
import pytest
from django import setup
from django.conf import settings
from django.db import transaction as django_transaction
from django.db.backends.postgresql.base import DatabaseWrapper
from django.db.utils import load_backend
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import URL, create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from tarry.core.errors import InvalidInput
from tarry.core.messages.model import Draft
from tarry.core.messages.outcomes import Outcome, Settled
from tarry.core.settings import QueueSettings
from tarry.edges.env import libpq_dsn
from tarry.storage.postgres._sync.store import PostgresStore
from tarry.storage.postgres.store import AsyncPostgresStore
from tests.kit.settings import FOR_TESTS
from tests.storage.postgres.messages.test_own_transactions import QUEUE, invoices, live_through_every_verb, plain

DUE = datetime(2030, 7, 1, 12, 30, tzinfo=UTC)


@pytest.fixture
def store(database: str) -> Iterator[PostgresStore]:
    store = PostgresStore(database, settings=FOR_TESTS)
    store.run(store.queues.create(QUEUE, QueueSettings(), exist_ok=False))
    with psycopg.connect(database) as conn:
        conn.execute("create table invoice (number int)")
    yield store
    store.close()


# Django


@pytest.fixture(params=[True, False], ids=["aware", "naive"])
def use_tz(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if not settings.configured:
        settings.configure(USE_TZ=True, TIME_ZONE="America/New_York", LOGGING_CONFIG=None)
        setup()
    monkeypatch.setattr(settings, "USE_TZ", request.param)
    return request.param


@pytest.fixture(params=[True, False], ids=["server binding", "client binding"])
def django(request: pytest.FixtureRequest, database: str, use_tz: bool) -> Iterator[DatabaseWrapper]:
    address = conninfo_to_dict(database)
    wrapper = load_backend("django.db.backends.postgresql").DatabaseWrapper(
        {
            "NAME": address["dbname"],
            "USER": address["user"],
            "PASSWORD": "",
            "HOST": address["host"],
            "PORT": address["port"],
            "OPTIONS": {"server_side_binding": request.param},
            "TIME_ZONE": "Europe/Berlin" if use_tz else None,
            "AUTOCOMMIT": True,
            "ATOMIC_REQUESTS": False,
            "CONN_MAX_AGE": 0,
            "CONN_HEALTH_CHECKS": False,
        },
        "default",
    )
    wrapper.ensure_connection()
    yield wrapper
    wrapper.close()


@pytest.fixture
def atomic(django: DatabaseWrapper, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`transaction.atomic` on this connection, as if the settings had named it."""
    monkeypatch.setattr(django_transaction, "get_connection", lambda using=None: django)
    return django_transaction.atomic


def test_every_verb_works_on_djangos_connection(django: DatabaseWrapper, store: PostgresStore) -> None:
    assert django.get_autocommit()
    live_through_every_verb(store, django.connection)


def test_every_verb_works_in_djangos_transaction(django: DatabaseWrapper, store: PostgresStore, atomic: Any) -> None:
    with atomic():
        live_through_every_verb(store, django.connection)


def test_an_offer_commits_with_djangos_transaction_or_not_at_all(
    database: str, django: DatabaseWrapper, store: PostgresStore, atomic: Any
) -> None:
    with suppress(RuntimeError), atomic():
        django.cursor().execute("insert into invoice values (1)")
        assert store.run(store.messages.offer(QUEUE, Draft("lost", b"")), conn=django.connection) is Outcome.CREATED
        raise RuntimeError
    with atomic():
        django.cursor().execute("insert into invoice values (2)")
        store.run(store.messages.offer(QUEUE, Draft("kept", b"")), conn=cast("Any", django))
        assert not store.run(store.messages.contains(QUEUE, "kept")), "it was seen before it was committed"
    assert (
        store.run(store.messages.contains(QUEUE, "lost")),
        store.run(store.messages.contains(QUEUE, "kept")),
        invoices(database),
    ) == (False, True, 1)


def test_a_savepoint_that_is_rolled_back_takes_its_offers_along(
    django: DatabaseWrapper, store: PostgresStore, atomic: Any
) -> None:
    with atomic():
        store.run(store.messages.offer(QUEUE, Draft("outer", b"")), conn=django.connection)
        with suppress(RuntimeError), atomic():
            store.run(store.messages.offer(QUEUE, Draft("inner", b"")), conn=django.connection)
            raise RuntimeError
    assert (store.run(store.messages.contains(QUEUE, "outer")), store.run(store.messages.contains(QUEUE, "inner"))) == (
        True,
        False,
    )


def test_an_ack_that_django_rolls_back_has_not_happened(
    django: DatabaseWrapper, store: PostgresStore, atomic: Any
) -> None:
    store.run(store.messages.offer(QUEUE, Draft("k", b"")))
    (lease,) = store.run(store.messages.poll(QUEUE, 1, plain))
    with atomic():
        assert store.run(store.messages.ack(QUEUE, [lease.lease_id]), conn=django.connection) == [Settled.DONE]
        django.set_rollback(True)
    assert store.run(store.messages.ack(QUEUE, [lease.lease_id])) == [Settled.DONE]


def test_neither_disturbs_how_the_other_reads_times(
    django: DatabaseWrapper, store: PostgresStore, use_tz: bool
) -> None:
    """Django reads them in the zone that its settings name, or without any; Tarry in UTC."""

    def djangos() -> Any:
        with django.cursor() as cursor:
            cursor.execute("select timestamptz '2030-07-01 12:30+00'")
            return cursor.fetchone()[0]

    before = djangos()
    assert (before.tzinfo is not None) is use_tz
    store.run(store.messages.offer(QUEUE, Draft("k", b"", due_at=DUE)), conn=django.connection)
    message = store.run(store.messages.read(QUEUE, "k"), conn=django.connection)
    assert message is not None
    assert (message.due_at, message.due_at.utcoffset()) == (DUE, timedelta(0))
    assert (djangos(), djangos().tzinfo) == (before, before.tzinfo)


# SQLAlchemy


def test_every_verb_works_underneath_a_session(database: str, store: PostgresStore) -> None:
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(database), pool_pre_ping=True)
    with Session(engine) as session, session.begin():
        live_through_every_verb(store, session.connection().connection.driver_connection)
    engine.dispose()


@pytest.mark.parametrize("level", ["AUTOCOMMIT", "SERIALIZABLE"])
def test_every_verb_works_at_the_isolation_of_an_engine(database: str, store: PostgresStore, level: Any) -> None:
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(database), isolation_level=level)
    with engine.begin() as connection:
        live_through_every_verb(store, connection.connection.driver_connection)
    engine.dispose()


def test_an_offer_commits_with_a_session_or_not_at_all(database: str, store: PostgresStore) -> None:
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(database))
    with Session(engine) as session:
        for key, end in (("lost", session.rollback), ("kept", session.commit)):
            # The offer comes first: nothing of SQLAlchemy's has begun the transaction on the wire.
            store.run(
                store.messages.offer(QUEUE, Draft(key, b"")), conn=session.connection().connection.driver_connection
            )
            session.execute(text("insert into invoice values (1)"))
            assert not store.run(store.messages.contains(QUEUE, key))
            end()
    engine.dispose()
    assert (
        store.run(store.messages.contains(QUEUE, "lost")),
        store.run(store.messages.contains(QUEUE, "kept")),
        invoices(database),
    ) == (False, True, 1)


def test_an_awaiting_session_is_as_good(database: str, store: PostgresStore) -> None:
    async def work() -> None:
        awaiting = AsyncPostgresStore(database, settings=FOR_TESTS)
        await awaiting.open()
        engine = create_async_engine(
            "postgresql+psycopg://",
            async_creator=lambda: psycopg.AsyncConnection.connect(database),
            poolclass=NullPool,
        )
        async with AsyncSession(engine) as session:
            for key, end in (("lost", session.rollback), ("kept", session.commit)):
                raw = await (await session.connection()).get_raw_connection()
                await awaiting.run(awaiting.messages.offer(QUEUE, Draft(key, b"")), conn=raw.driver_connection)
                await session.execute(text("insert into invoice values (1)"))
                await end()
            (lease,) = await awaiting.run(awaiting.messages.poll(QUEUE, 1, plain))
            raw = await (await session.connection()).get_raw_connection()
            assert await awaiting.run(awaiting.messages.ack(QUEUE, [lease.lease_id]), conn=raw.driver_connection) == [
                Settled.DONE
            ]
            await session.rollback()
            assert await awaiting.run(awaiting.messages.ack(QUEUE, [lease.lease_id])) == [Settled.DONE]
            for given in (session, await session.connection()):
                await awaiting.run(awaiting.messages.offer(QUEUE, Draft("direct", b"")), conn=cast("Any", given))
                assert await awaiting.run(awaiting.messages.contains(QUEUE, "direct"), conn=cast("Any", given))
                assert not await awaiting.run(awaiting.messages.contains(QUEUE, "direct"))
            await session.rollback()
        await engine.dispose()
        await awaiting.close()

    asyncio.run(work())
    assert (store.run(store.messages.contains(QUEUE, "lost")), invoices(database)) == (False, 1)


# What contains a connection


def test_a_session_and_a_connection_are_accepted_themselves_and_an_engine_is_refused(
    database: str, store: PostgresStore
) -> None:
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(database))
    with Session(engine) as session:
        for given in (session, session.connection(), session.connection().connection):
            store.run(store.messages.offer(QUEUE, Draft("k", b"")), conn=cast("Any", given))
            assert store.run(store.messages.contains(QUEUE, "k"), conn=cast("Any", given))
            assert not store.run(store.messages.contains(QUEUE, "k")), "it commits with the session"
        session.rollback()
        with pytest.raises(InvalidInput, match=r"psycopg\.Connection here, not Engine") as refused:
            store.run(store.messages.contains(QUEUE, "k"), conn=cast("Any", engine))
        assert "engine.begin()" in (refused.value.hint or "")
    engine.dispose()
    assert not store.run(store.messages.contains(QUEUE, "k"))


def test_a_connection_of_the_other_kind_is_refused_with_which_queue_takes_it(
    database: str, store: PostgresStore
) -> None:
    async def work() -> None:
        async with await psycopg.AsyncConnection.connect(database) as conn:
            with pytest.raises(InvalidInput, match="not AsyncConnection") as refused:
                store.run(store.messages.contains(QUEUE, "k"), conn=cast("Any", conn))
            assert "awaiting" in (refused.value.hint or "")

    asyncio.run(work())


@pytest.mark.parametrize("driver", ["psycopg", "psycopg_async", "psycopg2", "asyncpg"])
def test_an_address_of_sqlalchemy_is_one_of_postgresql(driver: str) -> None:
    url = URL.create(f"postgresql+{driver}", username="tarry", database="tarry")
    assert libpq_dsn(url.render_as_string()) == "postgresql://tarry@/tarry"
    assert libpq_dsn("host=db dbname=a://b") == "host=db dbname=a://b"
