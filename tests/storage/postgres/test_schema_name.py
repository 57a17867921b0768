"""Several installations in one database, each in a schema of its own that its address names."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlencode

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from psycopg.sql import SQL, Identifier

import tarry
from tarry import admin
from tarry.core.errors import InvalidInput, SchemaMismatch
from tarry.core.journal.snapshots import ColumnCondition, Scan
from tarry.core.settings import StoreSettings
from tarry.edges.env import libpq_dsn
from tarry.storage.postgres.connections import connected
from tarry.storage.postgres.schema_name import in_schema, listen_dsn_of, schema_of

ONLY_NOTIFIED = StoreSettings(scan_every=timedelta(hours=1), listening_scan_every=timedelta(hours=1))


@pytest.fixture
def address(database: str) -> str:
    """Of a database without the schema `tarry`."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("drop schema tarry cascade")
    return database


async def waiters(app: tarry.AsyncApp) -> bool:
    async with await psycopg.AsyncConnection.connect(app.dsn or "") as conn:
        name = schema_of(app.dsn or "")
        row = await (await conn.execute(SQL("select count(*) from {}.waiter").format(Identifier(name)))).fetchone()
    return row != (0,)


def test_no_statement_names_the_default_schema_after_it_was_renamed() -> None:
    folder = Path(str(files("tarry.storage.postgres")))
    texts = [file.read_text() for file in folder.rglob("*.sql") if file.name != "schema.sql"]
    assert len(texts) > 100
    code = re.sub(r"--[^\n]*", "", in_schema("\n".join(texts), "tenant"))  # pyright: ignore[reportArgumentType]
    assert re.findall(r".{0,30}\btarry\b.{0,30}", code) == []


def test_two_tenants_of_one_database_do_not_see_each_other(address: str) -> None:
    a, b = (tarry.connect(address, schema=name, migrate=True) for name in ("a", "b"))
    with a, b, psycopg.connect(address) as mine:
        for app, total in ((a, 1), (b, 2)):
            app.queue("orders").offer("order-1", {"total": total}, conn=mine)
        mine.commit()
        a.queue("bulk").offer_many([tarry.Message(payload=n) for n in range(5_000)])  # by COPY
        assert [app.queue("orders").read("order-1").payload["total"] for app in (a, b)] == [1, 2]  # pyright: ignore[reportOptionalMemberAccess]
        assert [queue.name for queue in b.queues.list()] == ["orders"]
        delivery = a.queue("orders").try_poll()
        assert delivery is not None
        assert delivery.bury("no") is tarry.Settled.DONE
        assert [len(app.queue("orders").dead_letters.list()) for app in (a, b)] == [1, 0]
        with psycopg.connect(a.dsn or "") as usable:  # by any program
            assert usable.execute("select count(*) from a.dead_letter").fetchone() == (1,)
        with a.cron() as cron:
            cron.install_periodic("beat", timedelta(hours=1), queue="beats")
        assert ([s.spec.name for s in a.schedules.list()], b.schedules.list()) == (["beat"], [])
    with psycopg.connect(address) as mine:
        assert mine.execute("select to_regnamespace('tarry')").fetchone() == (None,)


def test_a_notification_wakes_the_consumers_of_its_tenant_only(address: str) -> None:
    async def story() -> tuple[str, set[str]]:
        addresses = [libpq_dsn(address, name) for name in ("a", "b")]
        async with (
            await psycopg.AsyncConnection.connect(address, autocommit=True) as listener,
            tarry.connect_async(addresses[0], migrate=True, settings=ONLY_NOTIFIED) as a,
            tarry.connect_async(addresses[1], migrate=True, settings=ONLY_NOTIFIED) as b,
        ):
            await listener.execute("listen a; listen b; listen tarry")
            polls = [asyncio.create_task(app.queue("orders").poll(timedelta(seconds=60))) for app in (a, b)]
            while not all([await waiters(app) for app in (a, b)]):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await a.queue("orders").offer("order-1", 1)
            delivery = await polls[0]
            polls[1].cancel()
            await listener.execute("notify tarry, 'end'")  # after all that was sent before
            channels: set[str] = set()
            async for notification in listener.notifies():
                if notification.payload == "end":
                    break
                if notification.payload.startswith("orders"):
                    channels.add(notification.channel)
            return delivery.key if delivery else "", channels

    assert asyncio.run(story()) == ("order-1", {"a"})


def test_commands_and_checks_work_on_the_schema_of_the_address(address: str) -> None:
    named = f"{address} schema=tenant_a"
    applied, path = admin.migrate(named, post=True)
    assert (len(applied) > 0, path.warning) == (True, False)
    assert [check.check for check in admin.diagnose(named) if not check.ok] == []
    with tarry.connect(named) as app:
        app.queue("orders").offer("order-1", 1)
        windows = app.pipeline.windows
        slices = windows.slices(Scan(table="messages", columns=("key",)), None)
        assert [row["key"] for piece in slices for batch in windows.batches(piece) for row in batch.to_pylist()] == [
            "order-1"
        ]
    [migrations] = [check for check in admin.diagnose(address) if check.check == "migrations"]
    assert "pending" in migrations.actual  # of the default schema
    with pytest.raises(SchemaMismatch, match=r"schema tenant_b lacks .* --dsn '…\?schema=tenant_b'"):
        tarry.connect(address, schema="tenant_b")


def test_options_of_the_environment_apply_beside_the_schema(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGOPTIONS", r"-c search_path=a,\ b -c geqo=off")
    uri = f"postgresql:///?{urlencode(conninfo_to_dict(address))}"
    for named in (libpq_dsn(address, "tenant_a"), libpq_dsn(f"{uri}&schema=tenant_a")):
        assert schema_of(named) == "tenant_a"
        with connected(named) as conn:
            shown = "select current_setting('search_path'), current_setting('geqo')"
            assert conn.execute(shown).fetchone() == ("a, b", "off")


@pytest.mark.parametrize("table", ["events", "messages"])
def test_a_value_that_looks_like_the_default_schema_is_a_value(address: str, table: str) -> None:
    with tarry.connect(address, schema="tenant_a", migrate=True) as app:
        for queue in ("tarry", "orders"):
            app.queue(queue).offer("tarry.message", 1)
        windows = app.pipeline.windows
        conditions = (
            ColumnCondition("queue", "EqualTo", ("tarry",)),
            ColumnCondition("key", "EqualTo", ("tarry.message",)),
        )
        scan = Scan(table=table, columns=("queue", "key"), conditions=conditions)
        slices = windows.slices(scan, None)
        rows = [row for piece in slices for batch in windows.batches(piece) for row in batch.to_pylist()]
        assert [(row["queue"], row["key"]) for row in rows] == [("tarry", "tarry.message")]


def test_a_keyword_may_be_the_name(address: str) -> None:
    async def story() -> str | None:
        async with tarry.connect_async(address, schema="user", migrate=True, settings=ONLY_NOTIFIED) as app:
            poll = asyncio.create_task(app.queue("orders").poll(timedelta(seconds=60)))
            while not await waiters(app):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await app.queue("orders").offer("order-1", 1)
            delivery = await poll
            return delivery and delivery.key

    assert asyncio.run(story()) == "order-1"


@pytest.mark.parametrize("name", ["Tenant", "pg_temp", "information_schema", "1st", "a-b", "x" * 41, ""])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="schema="):
        libpq_dsn(f"postgresql://host/db?schema={name}")


@pytest.mark.parametrize("address", ["postgresql://host/db", "postgresql://host/db?sslmode=require", "host=host"])
@pytest.mark.parametrize("name", ["a&host=other", "a host=other", "a\n", "a&schema=b", "a#"])
def test_a_name_adds_no_keyword_to_the_address(address: str, name: str) -> None:
    with pytest.raises(InvalidInput, match="schema="):
        libpq_dsn(address, name)


def test_an_address_has_one_schema() -> None:
    for address in ("postgresql://host/db?schema=a&schema=b", "host=host schema=a schema=b"):
        with pytest.raises(InvalidInput, match="schema="):
            libpq_dsn(address)
    with pytest.raises(InvalidInput, match="schema="):
        libpq_dsn("postgresql://host/db?schema=a", "b")
    with pytest.raises(InvalidInput, match="no options"):
        libpq_dsn("host=host options=-cgeqo=off", "a")
    assert schema_of(libpq_dsn("host=host password=options=1", "a")) == "a"


def test_an_address_for_listening_gets_the_schema_of_the_store() -> None:
    dsn = libpq_dsn("postgresql+psycopg://pooler/db?schema=a")
    assert schema_of(listen_dsn_of(dsn, "postgresql://direct/db?options=-cgeqo%3Doff")) == "a"
    assert schema_of(listen_dsn_of(dsn, libpq_dsn("postgresql://direct/db?schema=b"))) == "a"
    assert listen_dsn_of(dsn, None) == dsn
    assert schema_of(listen_dsn_of("postgresql://pooler/db", "host=direct")) == "tarry"


def test_the_address_for_listening_is_that_of_the_environment_also_with_a_schema(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TARRY_DSN", address)
    monkeypatch.setenv("TARRY_LISTEN_DSN", address.replace("postgresql://", "postgresql+psycopg://"))
    with tarry.connect(schema="tenant_a", migrate=True) as app:
        assert app.store.settings.listen_dsn == address


def test_an_invalid_address_for_listening_is_refused_without_its_password(address: str) -> None:
    settings = StoreSettings(listen_dsn="host=direct password=s3cret unknown=1 s3cret")
    with pytest.raises(InvalidInput, match="not an address") as refused:
        tarry.connect(address, schema="tenant_a", migrate=True, settings=settings)
    assert "s3cret" not in str(refused.value)


def test_an_address_of_redis_has_no_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput, match="a Redis address"):
        tarry.connect("redis://localhost/0", schema="tenant_a")
    with pytest.raises(InvalidInput, match="a Redis address"):
        tarry.connect("redis://localhost/0?schema=tenant_a")
    monkeypatch.setenv("TARRY_DSN", "rediss+cluster://localhost?schema=tenant_a")
    with pytest.raises(InvalidInput, match="a Redis address"):
        tarry.connect()
