"""The roles that docs/howto/use-your-own-postgresql.md describes, as real roles: what each may do, and what it may not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

import httpx
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import tarry
from tarry.admin import diagnose
from tarry.app import connect_async
from tarry.core.errors import InvalidState
from tarry.core.settings import StoreSettings
from tarry.edges.http.settings import BrokerSettings
from tarry.storage.postgres import health
from tests.docs.pages import DOCS, blocks
from tests.kit.blocking import Loop
from tests.kit.brokers import broker_on

PAGE = DOCS / "howto" / "use-your-own-postgresql.md"
GRANTS = [block.text for block in blocks(PAGE) if block.language == "sql" and block.not_run is None]
APP, SERVICES, BROKER = GRANTS
KEY = (
    "insert into tarry.api_key (id, name, secret_hash, actions, queues, created_at) "
    "values ('00000000000a', 'mine', sha256('x'), '{admin}', '{*}', now())"
)
AUDIT = "insert into tarry.audit (at, actor, action) values (now(), 'actor', 'nothing')"
Grant = Callable[..., str]


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.stop()


@pytest.fixture
def granted(database: str) -> Iterator[Grant]:
    """The DSN of a role that has the rights of these blocks and no others."""
    made: list[str] = []

    def grant(role: str, *texts: str) -> str:
        with psycopg.connect(database, autocommit=True) as conn:
            for text in texts:
                conn.execute(text.encode())
            conn.execute(f"alter role {role} login".encode())
        made.append(role)
        return make_conninfo(database, user=role)

    yield grant
    with psycopg.connect(database, autocommit=True) as conn:
        for role in dict.fromkeys(made):
            # The role stays, without rights here: the examples of the page may have used it in another database.
            conn.execute(f"drop owned by {role}; alter role {role} nologin".encode())


def refused(dsn: str, *statements: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        for statement in statements:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                conn.execute(statement.encode())


def test_the_role_of_an_application_offers_polls_and_settles(granted: Grant) -> None:
    dsn = granted("shop_app", APP)
    with tarry.connect(dsn, settings=StoreSettings(create_queues=True)) as app:
        orders = app.queue("orders")
        orders.offer_many([tarry.Message(payload=n, key=str(n)) for n in range(3_000)])
        orders.offer("later", 1, after=timedelta(hours=1))
        orders.offer("later", 2, after=timedelta(hours=2))
        first, second, third, fourth = orders.poll_many(4, timedelta(seconds=30))
        assert first.ack() is tarry.Settled.DONE
        assert second.touch() is tarry.Settled.DONE
        assert second.nack("broken") is tarry.Settled.DONE
        assert third.release() is tarry.Settled.DONE
        assert fourth.bury("broken") is tarry.Settled.DONE
        assert orders.drop("later")
        assert len(orders.dead_letters.list()) == 1
        assert app.queues.counts("orders").dead.n == 1
        assert app.queue("empty").poll(timedelta(milliseconds=100)) is None, "it waits, too"
        with psycopg.connect(dsn) as own:
            orders.offer("with mine", 1, conn=own)
        assert orders.contains("with mine")
    assert [finding for finding in diagnose(dsn) if not finding.ok] == []


def test_the_role_of_an_application_cannot_touch_keys_the_audit_or_the_past(granted: Grant, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(AUDIT)
    for texts in ((APP,), (APP, SERVICES)):
        dsn = granted("shop_app", *texts)
        refused(
            dsn, KEY, AUDIT, "select * from tarry.api_key", "update tarry.api_key set revoked_at = null",
            "delete from tarry.api_key", "delete from tarry.audit", "truncate tarry.audit",
            "update tarry.audit set actor = 'x'",
            "select * from tarry.audit", "delete from tarry.event", "update tarry.event set queue = queue",
            "truncate tarry.event",
            "delete from tarry.event_overflow", "insert into tarry.migration values (9999, 'x', 'x')",
            "create table tarry.mine (id int)", "drop table tarry.audit",
        )  # fmt: skip
        with tarry.connect(dsn) as app:
            for use in (lambda app=app: app.keys.create("k", ["admin"]), lambda app=app: app.keys.list()):
                with pytest.raises(InvalidState):
                    use()
    with psycopg.connect(database) as owner:
        assert owner.execute("select count(*) from tarry.audit").fetchone() == (1,)


def test_the_role_of_a_scheduler_plans_redrives_sweeps_and_follows(granted: Grant, loop: Loop) -> None:
    dsn = granted("shop_app", APP, SERVICES)
    with tarry.connect(dsn) as app:
        app.cron().install_periodic("beat", timedelta(minutes=1), queue="orders")
        assert [schedule.spec.name for schedule in app.schedules.list()] == ["beat"]
        app.queue("orders").offer("k", 1)
        delivery = app.queue("orders").poll(timedelta(seconds=30))
        assert delivery is not None
        delivery.bury("broken")
        assert app.queue("orders").dead_letters.start_redrive().job.queue == "orders"
        assert app.store.run(app.store.journal.tail(None)).position
        assert app.queues.rename("orders", "sales").name == "sales"

    async def sweep() -> None:
        async with connect_async(dsn) as app, app.sweeper():
            pass

    loop.run(sweep())


def test_a_broker_with_the_role_of_an_application_refuses_every_caller(granted: Grant, loop: Loop) -> None:
    opening = connect_async(granted("shop_app", APP, SERVICES))
    app = loop.run(opening.__aenter__())
    with broker_on(app, loop, BrokerSettings(anonymous=True)) as url:
        for method, path in (("GET", "/v1/queues"), ("POST", "/v1/keys"), ("GET", "/v1/audit")):
            for headers in ({}, {"x-api-key": f"tarry_{'0' * 12}_{'0' * 64}"}):
                assert httpx.request(method, url + path, headers=headers).status_code >= 400
    loop.run(opening.__aexit__(None, None, None))


def test_the_role_of_a_broker_serves_and_cannot_wipe_the_audit(granted: Grant, loop: Loop) -> None:
    dsn = granted("shop_broker", BROKER)
    opening = connect_async(dsn, settings=StoreSettings(create_queues=False))
    app = loop.run(opening.__aenter__())
    with broker_on(app, loop, BrokerSettings(anonymous=True)) as url:
        made = httpx.post(f"{url}/v1/keys", json={"name": "k", "actions": ["admin", "read", "produce", "consume"]})
        assert made.status_code == 201
        with httpx.Client(base_url=url, headers={"x-api-key": made.json()["key"]}) as client:
            assert client.post("/v1/queues/orders/messages", json={"key": "k", "payload": 1}).status_code == 201
            polled = client.post("/v1/queues/orders/messages:poll", json={"wait": 10}).json()["messages"][0]
            settle = {"token": polled["token"]}
            assert client.post(f"/v1/messages/{polled['id']}/ack", json=settle).status_code == 200
            assert client.put("/v1/schedules/s", json={"every": "1h", "queue": "orders"}).status_code in (200, 201)
            assert client.post("/v1/queues/orders/pause", json={}).status_code == 200
            assert client.get("/v1/audit").json()["audit"][-1]["detail"]["created_key"] == made.json()["id"]
            assert client.delete(f"/v1/keys/{made.json()['id']}").status_code == 200
    loop.run(opening.__aexit__(None, None, None))
    refused(
        dsn, "delete from tarry.audit", "truncate tarry.audit", "update tarry.audit set actor = 'x'",
        "delete from tarry.api_key", "truncate tarry.api_key", "delete from tarry.event",
        "update tarry.event set queue = queue", "drop table tarry.audit",
    )  # fmt: skip


def test_the_health_check_accepts_the_documented_roles(granted: Grant) -> None:
    for role, texts in (("shop_app", (APP,)), ("shop_broker", (BROKER,))):
        with psycopg.connect(granted(role, *texts)) as conn:
            health.check_schema(conn)
