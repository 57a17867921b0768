"""Programs that are started with the address of a Redis: commands, broker, worker, scheduler and sweeper."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import tarry
from tarry import Settled
from tarry.http import Client
from tests.kit.backends import new_name
from tests.kit.ports import free_port
from tests.kit.redis_servers import RedisServer, until
from tests.kit.steps import SECOND, TIMEOUT, take

JOBS = """
import tarry

worker = tarry.Worker()

@worker.handler("jobs")
async def job(payload: str) -> None:
    print("handled", payload, flush=True)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    server = RedisServer("--appendfsync", "always")
    yield server
    server.close()


@pytest.fixture(params=["--dsn", "TARRY_DSN"])
def started_by(request: pytest.FixtureRequest, server: RedisServer) -> tuple[list[str], dict[str, str]]:
    """How a program is given the address: options and environment."""
    environment = {name: value for name, value in os.environ.items() if name != "TARRY_DSN"}
    if request.param == "--dsn":
        return ["--dsn", server.url], environment
    return [], {**environment, "TARRY_DSN": server.url}


@contextmanager
def program(server: RedisServer, *args: str, cwd: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    """A process that ends well after SIGTERM."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tarry", *args],
        env={**os.environ, "TARRY_DSN": server.url},
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT.total_seconds()) == 0, process.communicate()[0]
    finally:
        process.kill()
        process.communicate()


def test_commands_offer_poll_and_show_what_happened(started_by: tuple[list[str], dict[str, str]]) -> None:
    options, environment = started_by
    name = new_name()

    def run(*args: str) -> Any:
        command = [sys.executable, "-m", "tarry", *args, *options, "--json", "--quiet"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    assert run("offer", name, '{"n": 1}', "--key", "a")["outcome"] == "created"
    assert name in [queue["name"] for queue in run("queue", "list")["queues"]]
    assert run("poll", name)["messages"][0]["payload"] == {"n": 1}
    assert run("message", "timeline", name, "a")["events"][-1]["kind"] == "acked"


def test_a_broker_serves_clients_and_is_ready(server: RedisServer) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with program(server, "serve", "--port", url.rpartition(":")[2]):
        until(lambda: _is_ready(f"{url}/readyz"))
        with Client(url) as client:
            queue = client.queue(new_name())
            queue.offer("a", 1)
            delivery = queue.poll(TIMEOUT)
            assert delivery is not None
            assert delivery.ack() is Settled.DONE


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(url).status_code == 200
    except httpx.TransportError:
        return False


def test_a_worker_handles_messages(server: RedisServer, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(JOBS)
    with tarry.connect(server.url) as app, program(server, "worker", "shop:worker", cwd=tmp_path) as worker:
        app.queue("jobs").offer("a", "it")
        assert worker.stdout is not None
        assert "handled it\n" in iter(worker.stdout.readline, "")
        until(lambda: not app.queue("jobs").contains("a"))


def test_a_scheduler_makes_messages(server: RedisServer) -> None:
    name = new_name()
    with tarry.connect(server.url) as app, program(server, "scheduler"):
        app.cron().install_periodic(name, SECOND, queue=name, payload=name)
        for _ in range(2):
            delivery = app.queue(name).poll(TIMEOUT)
            assert delivery is not None
            assert (delivery.payload, delivery.ack()) == (name, Settled.DONE)


def test_a_sweeper_buries_what_has_no_attempts_left(server: RedisServer) -> None:
    name = new_name()
    with tarry.connect(server.url) as app, program(server, "sweeper", "--every", "1s"):
        app.queue(name).offer("a", 1, max_attempts=1)
        take(app.queue(name), lease_for=SECOND)
        until(lambda: app.queues.counts(name).dead.n == 1)
