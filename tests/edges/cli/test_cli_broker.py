"""tarry key and tarry serve, as an operator uses them."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tarry.app import App
from tarry.core.journal.events import EventKind
from tests.edges.conftest import Run
from tests.kit.sleepers import until

Start = Callable[..., "subprocess.Popen[bytes]"]


def address(broker: subprocess.Popen[bytes]) -> str:
    assert broker.stderr is not None
    for line in broker.stderr:
        if match := re.search(rb"listening on (http://\S+)", line):
            return match[1].decode()
    raise AssertionError("it ended before it answered")


def test_a_key_is_made_listed_and_revoked(cli: Run, app: App) -> None:
    made = cli("key", "create", "shop", "--action", "produce", "--queue", "orders", "--expires", "90d", "--json").data
    assert re.fullmatch(r"tarry_[0-9a-f]{12}_[0-9a-f]{64}", made["key"])
    assert (made["actions"], made["queues"], made["active"]) == (["produce"], ["orders"], True)
    (listed,) = cli("key", "list", "--json").data["keys"]
    assert listed["id"] == made["id"]
    assert "key" not in listed
    assert cli("key", "revoke", made["id"], "--json").data["active"] is False
    assert [row.action for row in app.store.run(app.store.security.audits())] == [
        "tarry key revoke",
        "tarry key create",
    ]


def test_the_first_key_ends_anonymous_access_and_a_quiet_one_is_printed_alone(cli: Run) -> None:
    create = ("key", "create", "shop", "--action", "all")
    assert "refuse requests without a key within two seconds" in cli(*create).err
    assert "two seconds" not in cli(*create).err
    assert re.fullmatch(r"tarry_[0-9a-f]{12}_[0-9a-f]{64}\n", cli(*create, "--quiet").out)


def test_all_means_every_action_on_every_queue(cli: Run) -> None:
    made = cli("key", "create", "ops", "--action", "all", "--json").data
    assert (made["actions"], made["queues"]) == (["admin", "consume", "produce", "read"], ["*"])


def test_a_key_that_is_not_there_cannot_be_revoked(cli: Run) -> None:
    for id in ("0" * 12, "'; --"):
        assert cli("key", "revoke", id).code == 3


def test_beyond_this_machine_there_must_be_a_key(cli: Run) -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1"):
        ran = cli("serve", "--host", host, "--port", "0")
        assert ran.code == 4
        assert "without an API key" in ran.err
        assert "tarry key create" in ran.err


def test_beside_the_broker_a_sweeper_carries_redrive_jobs_on(process: Start, app: App) -> None:
    queue = app.queue("orders")
    for key in "abc":
        queue.offer(key, 1)
        delivery = queue.try_poll()
        assert delivery is not None
        delivery.bury("boom")
    job = queue.dead_letters.start_redrive()
    broker = process("serve", "--port", "0", "--no-access-log", "--sweep-every", "1s", "--pool-size", "2")
    with httpx.Client(base_url=address(broker)) as client:
        until(lambda: client.get(f"/v1/redrives/{job.id}").json()["state"] == "done")
        assert client.get("/v1/queues/orders").json()["counts"]["ready"]["n"] == 3
    broker.send_signal(signal.SIGTERM)
    assert broker.wait(20) == 0


def test_a_broker_sweeps_as_often_as_its_option_requires(process: Start, app: App) -> None:
    """Five leases expire one after another, each after the expiry of the one before was journaled. By default it sweeps every
    ten seconds, so that this would take more than the 30 of `until`."""
    queue, journal = app.queue("orders"), app.store.journal
    process("serve", "--port", "0", "--sweep-every", "200ms")
    leased: list[str] = []

    def five_have_expired() -> bool:
        if leased and EventKind.EXPIRED not in [
            event.kind for event in app.store.run(journal.timeline("orders", leased[-1]))
        ]:
            return False
        if len(leased) == 5:
            return True
        leased.append(f"k{len(leased)}")
        queue.offer(leased[-1], 1, priority=len(leased))
        held = queue.try_poll(lease_for=timedelta(seconds=1))
        assert held is not None
        assert held.key == leased[-1]
        return False

    until(five_have_expired)


def test_a_broker_has_as_many_connections_as_its_pool_may_have(process: Start, app: App, database: str) -> None:
    names = [f"orders{n}" for n in range(12)]
    for name in names:
        app.queues.create(name)
    named = {"TARRY_DSN": make_conninfo(database, application_name="broker")}
    broker = process("serve", "--port", "0", "--pool-size", "3", "--no-sweeper", "--no-access-log", env=named)
    with (
        psycopg.connect(database, autocommit=True) as watching,
        psycopg.connect(database) as locking,
        httpx.Client(base_url=address(broker), timeout=60) as client,
        ThreadPoolExecutor(len(names)) as threads,
    ):
        locking.execute("lock table tarry.message in access exclusive mode")
        polls = [threads.submit(client.post, f"/v1/queues/{name}/messages:poll") for name in names]

        def sessions() -> int:
            rows = watching.execute(
                "select count(*) from pg_stat_activity where application_name = 'broker'"
            ).fetchall()
            return rows[0][0]

        until(lambda: sessions() >= 3)
        locking.commit()
        assert {poll.result().status_code for poll in polls} == {204}
        until(lambda: sessions() <= 3, "it has more connections")  # a session of its start may still be ending
        assert 'tarry_pool_connections{state="most"} 3.0' in client.get("/metrics").text


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_broker_runs_on_uvloop_and_httptools(process: Start) -> None:
    broker = process("serve", "--port", "0")
    assert httpx.get(f"{address(broker)}/healthz").status_code == 200
    loaded = Path(f"/proc/{broker.pid}/maps").read_text()
    assert "/uvloop/" in loaded
    assert "/httptools/" in loaded


def test_a_broker_serves_until_it_is_signalled_to_stop(process: Start, cli: Run) -> None:
    broker = process("serve", "--port", "0")
    url = address(broker)
    with httpx.Client(base_url=url) as client:
        assert client.get("/readyz").json() == {"status": "ok"}
        offered = client.post("/v1/queues/hello/messages", json={"payload": {"hi": "there"}, "key": "k"})
        assert offered.status_code == 201
        held = client.post("/v1/queues/hello/messages:poll", json={"wait": 5}).json()["messages"][0]
        assert held["payload"] == {"hi": "there"}
        acked = client.post(f"/v1/messages/{held['id']}/ack", json={"token": held["token"]})
        assert acked.json() == {"outcome": "done"}
        made: Any = cli("key", "create", "reader", "--action", "read", "--json").data
        headers = {"authorization": f"Bearer {made['key']}"}
        assert client.get("/v1/queues", headers=headers).json()["queues"][0]["name"] == "hello"
    broker.send_signal(signal.SIGTERM)
    assert broker.wait(20) == 0
    assert broker.stderr is not None
    log = broker.stderr.read().decode()
    assert "POST /v1/queues/{queue}/messages:poll 200" in log
    assert made["key"] not in log
