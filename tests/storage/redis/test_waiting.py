"""Consumers that wait, in processes that are killed with SIGKILL, and consumers of other processes that are woken."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import msgspec
import pytest
import redis

import tarry
from tarry.core.settings import StoreSettings
from tarry.storage.redis.operation import REGISTRY
from tests.kit.backends import new_name
from tests.kit.redis_servers import RedisServer, until
from tests.kit.steps import HOUR, TIMEOUT, TIMEOUT_S, in_background

SCAN = timedelta(seconds=2)
SETTINGS = StoreSettings(listening_scan_every=SCAN)
NEVER = StoreSettings(scan_every=timedelta(minutes=10), listening_scan_every=timedelta(minutes=10))
CONSUMER = """
import sys
from datetime import timedelta
import tarry
from tarry.core.settings import StoreSettings
settings = StoreSettings(listening_scan_every=timedelta(seconds=2))
with tarry.connect(sys.argv[1], settings=settings) as app:
    delivery = app.queue(sys.argv[2]).poll(timedelta(minutes=2), lease_for=timedelta(seconds=float(sys.argv[3])))
    print(delivery.key, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    server = RedisServer("--appendfsync", "always")
    yield server
    server.close()


@pytest.fixture
def admin(server: RedisServer) -> Iterator[Any]:
    with redis.Redis(port=server.port) as admin:
        yield admin


@contextmanager
def consumer(server: RedisServer, queue: str, lease_s: float = 60.0) -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits for one message and leases it."""
    process = subprocess.Popen(
        [sys.executable, "-c", CONSUMER, server.url, queue, str(lease_s)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def waiters(admin: Any, queue: str) -> list[dict[str, Any]]:
    id = admin.hget(f"{REGISTRY}:names", queue) or b""
    return [msgspec.msgpack.decode(packed) for packed in admin.hvals(f"tarry:{{{id.decode()}}}:waiters")]


def test_when_one_that_waits_for_the_head_is_killed_another_delivers_within_one_scan(
    server: RedisServer, admin: Any
) -> None:
    name = new_name()
    with tarry.connect(server.url, settings=SETTINGS) as app, consumer(server, name) as killed:
        queue = app.queue(name)
        with in_background(queue.poll, TIMEOUT) as waiting:
            until(lambda: len(waiters(admin, name)) == 2)
            queue.offer("a", 1, after=timedelta(seconds=3))
            due = queue.read("a").due_at.timestamp()  # pyright: ignore[reportOptionalMemberAccess]
            until(lambda: sum(each["wakes_at"] == round(due * 1e6) for each in waiters(admin, name)) == 2)
            killed.kill()
            delivery = waiting.result(TIMEOUT_S)
            assert delivery.attempt == 1
            assert timedelta(0) <= delivery.leased_at - delivery.due_at <= SCAN
            assert killed.communicate()[0] == b"", "it was meant to be dead by then"


def test_when_one_that_has_leased_a_message_is_killed_another_one_that_waits_gets_it_within_one_scan(
    server: RedisServer, admin: Any
) -> None:
    name = new_name()
    with tarry.connect(server.url, settings=SETTINGS) as app, consumer(server, name, lease_s=2.0) as killed:
        queue = app.queue(name)
        queue.offer("a", 1)
        assert killed.stdout is not None
        assert killed.stdout.readline() == b"a\n"
        ended = queue.read("a").lease_until  # pyright: ignore[reportOptionalMemberAccess]
        assert ended is not None
        killed.kill()
        delivery: Any = queue.poll(TIMEOUT)
        assert delivery.attempt == 2
        assert timedelta(0) <= delivery.leased_at - ended <= SCAN


@pytest.mark.usefixtures("deep_sleep")
def test_an_earlier_offer_of_another_process_wakes_one_that_does_not_scan(server: RedisServer, admin: Any) -> None:
    name = new_name()
    with tarry.connect(server.url, settings=NEVER) as app, tarry.connect(server.url) as other:
        other.queue(name).offer("far", 1, after=HOUR)
        with in_background(app.queue(name).poll, TIMEOUT) as waiting:
            until(lambda: len(waiters(admin, name)) == 1)
            other.queue(name).offer("later", 1, after=2 * HOUR)
            assert len(waiters(admin, name)) == 1, "it is not woken for what is due after its time"
            other.queue(name).offer("near", 1)
            assert waiting.result(TIMEOUT_S).key == "near"


@pytest.mark.usefixtures("deep_sleep")
@pytest.mark.parametrize("what", ["was delayed before", "is offered afterwards"])
def test_a_consumer_that_does_not_scan_gets_a_message_in_time_after_a_restart_of_the_server(
    server: RedisServer, admin: Any, what: str
) -> None:
    name = new_name()
    with tarry.connect(server.url, settings=NEVER) as app, tarry.connect(server.url) as other:
        if what == "was delayed before":
            other.queue(name).offer("a", 1, after=timedelta(seconds=3))
        with in_background(app.queue(name).poll, TIMEOUT) as waiting:
            until(lambda: len(waiters(admin, name)) == 1)
            server.kill()
            server.start()
            if what == "is offered afterwards":
                other.queue(name).offer("a", 1)
            delivery = waiting.result(TIMEOUT_S)
        assert timedelta(0) <= delivery.leased_at - delivery.due_at <= SCAN
