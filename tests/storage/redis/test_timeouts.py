"""A server that accepts connections and does not reply: calls end, also with TLS, and nothing is done twice."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import tarry
from tarry.core.errors import StoreUnavailable
from tarry.core.messages.outcomes import Outcome
from tarry.core.settings import RetrySettings, StoreSettings
from tests.kit.backends import new_name
from tests.kit.certificates import self_signed
from tests.kit.ports import free_port
from tests.kit.redis_servers import RedisServer
from tests.kit.steps import SECOND

IMPATIENT = StoreSettings(statement_for=SECOND / 2, connection_retry=RetrySettings(retries=1))


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RedisServer, dict[str, str]]]:
    """A server, and its addresses."""
    file, port = self_signed(tmp_path_factory.mktemp("tls")), free_port()
    files = ("--tls-cert-file", f"{file}", "--tls-key-file", f"{file}.key", "--tls-ca-cert-file", f"{file}")
    server = RedisServer("--appendfsync", "always", "--tls-port", str(port), *files, "--tls-auth-clients", "no")
    yield server, {"plain": server.url, "tls": f"rediss://localhost:{port}/0?ssl_ca_certs={file}"}
    server.close()


@pytest.fixture
def server(servers: tuple[RedisServer, dict[str, str]]) -> RedisServer:
    return servers[0]


@pytest.fixture(params=["plain", "tls"])
def url(servers: tuple[RedisServer, dict[str, str]], request: pytest.FixtureRequest) -> str:
    return servers[1][request.param]


def test_an_address_is_connected_blocking_and_awaiting(url: str) -> None:
    async def awaited(queue: str) -> Any:
        async with await tarry.connect_async(url) as app:
            delivery = await app.queue(queue).try_poll()
            assert delivery is not None
            await delivery.ack()
            return delivery.payload

    name = new_name()
    with tarry.connect(url) as app:
        assert app.queue(name).offer("a", {"n": 1}) is Outcome.CREATED
    assert asyncio.run(awaited(name)) == {"n": 1}


def test_a_server_that_does_not_reply_is_unavailable_when_the_time_is_over(server: RedisServer, url: str) -> None:
    with tarry.connect(url, settings=IMPATIENT) as app:
        queue = app.queue(new_name())
        queue.offer("before", 1)
        with server.stopped(), pytest.raises(StoreUnavailable):
            queue.offer("meanwhile", 2)
        assert queue.offer("after", 3) is Outcome.CREATED


def test_an_awaiting_call_to_such_a_server_ends_as_well(server: RedisServer, url: str) -> None:
    async def offers() -> None:
        async with await tarry.connect_async(url, settings=IMPATIENT) as app:
            queue = app.queue(new_name())
            await queue.offer("before", 1)
            with server.stopped(), pytest.raises(StoreUnavailable):
                await queue.offer("meanwhile", 2)
            assert await queue.offer("after", 3) is Outcome.CREATED

    asyncio.run(offers())


def test_a_cancelled_call_is_cancelled_whenever_it_is_cancelled(server: RedisServer) -> None:
    """Before Python 3.12, `asyncio.wait_for` returns the result of a call that ends when its task is cancelled. A worker that
    was stopped then would poll on, and hold what it leases."""

    async def swallowed() -> list[int]:
        async with await tarry.connect_async(server.url) as app:
            queue = app.queue(new_name())
            await queue.offer("a", 1)
            returned: list[int] = []
            for turns in range(12):  # of the event loop, before the cancellation; a call needs about five
                call = asyncio.create_task(queue.contains("a"))
                for _ in range(turns):
                    await asyncio.sleep(0)
                if call.cancel():
                    await asyncio.wait([call])
                    returned += [] if call.cancelled() else [turns]
            return returned

    assert asyncio.run(swallowed()) == []
