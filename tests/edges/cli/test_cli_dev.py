"""tarry dev: broker, scheduler, sweeper and worker in one real process."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, LiteralString

import httpx
import psycopg

from tarry.app import App
from tests.edges.conftest import Run
from tests.kit.sleepers import until
from tests.kit.steps import in_background

Start = Callable[..., "subprocess.Popen[bytes]"]
TIMEOUT = timedelta(seconds=60)
END_S = 60
JOBS = """
import asyncio
import tarry

worker = tarry.Worker()

@worker.handler("jobs")
async def job(payload: str) -> None:
    async with tarry.connect_async() as app:
        await app.queue("received").offer(None, payload)
    if payload == "for ever":
        await asyncio.Event().wait()
"""


def logged(running: subprocess.Popen[bytes], word: str) -> dict[str, Any]:
    """The first line of JSON that has this word in it."""
    assert running.stdout is not None
    for line in running.stdout:
        if word in line.decode():
            return json.loads(line)
    raise AssertionError(f"it ended without logging {word!r}: {running.stderr and running.stderr.read()!r}")


LISTENING = """
    select count(*) from pg_stat_activity where application_name = 'tarry-listen' and datname = current_database()
"""


def counted(app: App, query: LiteralString) -> int:
    with psycopg.connect(app.dsn or "") as conn:
        row = conn.execute(query).fetchone()
    assert row is not None
    return row[0]


def test_a_tick_of_a_schedule_comes_by_http(process: Start, cli: Run, app: App) -> None:
    assert cli("cron", "add", "beat", "--every", "1s", "--queue", "beats", "--payload", '{"hi": 1}').code == 0
    running = process("dev", "--port", "0")
    assert running.stdout is not None
    rows = [re.split("  +", next(running.stdout).decode().strip(), maxsplit=1) for _ in range(8)]
    names, descriptions = zip(*rows, strict=True)
    assert names == ("broker", "its API", "dashboard", "database", "scheduler", "sweeper", "worker", "try it")
    assert descriptions[4].startswith("plans 1 schedule;")
    assert "Tarry" in httpx.get(descriptions[1], timeout=END_S).text
    keys: set[str] = set()
    with httpx.Client(base_url=descriptions[0], timeout=END_S) as client:
        while len(keys) < 3:
            body = client.post("/v1/queues/beats/messages:poll", json={"wait": 30}).json()
            for held in body["messages"]:
                assert held["payload"] == {"hi": 1}
                client.post(f"/v1/messages/{held['id']}/ack", json={"token": held["token"]})
                keys.add(held["key"])
    assert app.store.run(app.store.maintenance.leader("sweeper")) is not None
    running.send_signal(signal.SIGINT)
    assert running.wait(END_S) == 0
    assert (
        app.store.run(app.store.maintenance.leader("sweeper")) is None
    )  # it gave up its office, instead of letting others wait


def test_the_printed_curl_works_where_there_are_keys(process: Start, app: App, database: str) -> None:
    app.keys.create("ops", ["admin"], ["*"])
    running = process("dev", "--port", "0")
    assert running.stdout is not None
    curl = next(line for line in running.stdout if line.startswith(b"try it")).decode().removeprefix("try it").strip()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = os.environ | {"PATH": path, "TARRY_DSN": database}
    assert '"created"' in subprocess.check_output(["bash", "-c", curl], env=env, text=True, timeout=END_S)


def test_a_worker_runs_beside_them_and_a_second_signal_ends_all_at_once(
    process: Start, app: App, tmp_path: Path
) -> None:
    (tmp_path / "jobs.py").write_text(JOBS)
    running = process("dev", "jobs:worker", "--port", "0", "-o", "jsonl")
    begun = logged(running, "tarry.dev/1")
    assert (begun["worker"], begun["queues"], begun["embedded"]) == ("jobs:worker", ["jobs"], False)
    with httpx.Client(base_url=begun["url"], timeout=END_S) as client:
        client.post("/v1/queues/others/messages", json={"payload": "not yet", "after": "1h"})
        with in_background(client.post, "/v1/queues/others/messages:poll", json={"wait": 30}):
            # The broker and the worker sleep each for itself, and share one LISTEN connection.
            until(
                lambda: counted(app, "select count(distinct process) from tarry.waiter") == 2, "they do not both wait"
            )
            assert counted(app, LISTENING) == 1
            client.post("/v1/queues/others/messages", json={"payload": "enough"})
        assert client.post("/v1/queues/jobs/messages", json={"payload": "for ever"}).status_code == 201
    assert app.queue("received").poll(TIMEOUT) is not None
    running.send_signal(signal.SIGTERM)
    logged(running, "SIGTERM: stopping")
    running.send_signal(signal.SIGTERM)
    assert running.wait(END_S) == 130


def test_a_problem_is_reported_before_anything_runs(cli: Run) -> None:
    ran = cli("dev", "nowhere:worker", "--port", "0")
    assert (ran.code, "there is no module nowhere" in ran.err) == (2, True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ran = cli("dev", "--port", str(taken.getsockname()[1]))
    assert (ran.code, "choose another --port" in ran.err) == (4, True)
