"""The broker inside another FastAPI application, which has a lifespan, routes and errors of its own."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI, HTTPException

import tarry.fastapi
import tarry.http
from tarry.app import AsyncApp
from tarry.core.errors import InvalidInput
from tarry.core.settings import StoreSettings
from tarry.edges.http.app import broker_app
from tarry.edges.http.server import bind
from tarry.edges.http.settings import BrokerSettings
from tarry.storage.memory import AsyncMemoryStore, MemoryStore
from tests.edges.http.conftest import Caller
from tests.edges.http.routes.test_live_events import fail
from tests.edges.http.test_responses import code
from tests.kit.blocking import Loop
from tests.kit.sleepers import until
from tests.kit.sse import EventSource

LIFE: list[str] = []
PROMPT_S = 20
"""Idle, it takes less than one second, and three with a client that does not read; without a mend, for ever."""
_HOST = """
import contextlib, fastapi, uvicorn
from tarry.app import AsyncApp
from tarry.edges.http.app import broker_app
from tarry.edges.http.server import bind
from tarry.edges.http.settings import BrokerSettings
from tarry.storage.memory import AsyncMemoryStore, MemoryStore

@contextlib.asynccontextmanager
async def lifespan(api):
    async with AsyncApp(AsyncMemoryStore(MemoryStore())) as app:
        api.mount("/tarry", broker_app(app, BrokerSettings(anonymous=True)))
        yield
    print("closed", flush=True)

listening = bind("127.0.0.1", 0)
print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
uvicorn.Server(uvicorn.Config(fastapi.FastAPI(lifespan=lifespan), log_level="warning")).run([listening])
"""


def outer() -> FastAPI:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        LIFE.append("opened")
        store = AsyncMemoryStore(MemoryStore(settings=StoreSettings(create_queues=False)))
        async with AsyncApp(store) as behind:
            app.mount("/tarry", broker_app(behind, BrokerSettings(anonymous=True)))
            yield {"behind": behind}
        LIFE.append("closed")

    app = FastAPI(lifespan=lifespan)

    @app.get("/hello")
    async def hello() -> dict[str, str]:
        return {"hello": "outer"}

    @app.get("/broken")
    async def broken() -> None:
        raise HTTPException(418, "short and stout")

    return app


class Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.open = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.open.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def running(app: FastAPI) -> AsyncIterator[str]:
    """With a real server, so that the lifespan is the server's business."""
    listening = bind("127.0.0.1", 0)
    server = Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="on"))
    task = asyncio.create_task(server.serve([listening]))
    try:
        async with asyncio.timeout(30):
            await server.open.wait()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
        listening.close()


@pytest.fixture
def url(http_loop: Loop) -> Any:
    LIFE.clear()
    server = running(outer())
    address = http_loop.run(server.__aenter__())
    yield address
    http_loop.run(server.__aexit__(None, None, None))
    assert LIFE == ["opened", "closed"]


def test_both_applications_respond_with_their_own_errors(url: str) -> None:
    assert httpx.get(f"{url}/hello").json() == {"hello": "outer"}
    assert httpx.get(f"{url}/broken").json() == {"detail": "short and stout"}
    offered = httpx.post(f"{url}/tarry/v1/queues/orders/messages", json={"payload": 1})
    assert offered.status_code == 201
    assert code(httpx.get(f"{url}/tarry/v1/queues/nowhere")) == (404, "unknown_queue")
    assert code(httpx.get(f"{url}/tarry/v1/nothing")) == (404, "no_route")
    assert httpx.get(f"{url}/v1/queues").status_code == 404
    assert "paths" in httpx.get(f"{url}/tarry/openapi.json").json()
    assert "/tarry" not in str(httpx.get(f"{url}/openapi.json").json()["paths"])


def test_a_client_works_below_the_path_it_is_mounted_at(url: str) -> None:
    with tarry.http.Client(f"{url}/tarry") as client:
        queue = client.queue("orders")
        queue.offer("a", {"n": 1})
        delivery = queue.poll()
        assert delivery is not None
        assert (delivery.payload, delivery.ack().value) == ({"n": 1}, "done")


def _poll(url: str) -> int:
    return httpx.post(f"{url}/v1/queues/waiting/messages:poll", json={"wait": 50}, timeout=60).status_code


@pytest.mark.parametrize("small", [False, True], ids=["that reads", "that does not read"])
def test_the_application_ends_soon_with_a_live_stream_and_a_long_poll_under_way(small: bool) -> None:
    """As its own uvicorn runs it, in a process that is signalled to stop."""
    process = subprocess.Popen([sys.executable, "-c", _HOST], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        url = process.stdout.readline().strip()
        with EventSource(f"{url}/tarry").until_hello() as source, tarry.http.Client(f"{url}/tarry") as client:
            sleeper = EventSource(f"{url}/tarry", small=True) if small else None
            client.queues.create("q")
            statuses: list[int] = []
            polling = threading.Thread(target=lambda: statuses.append(_poll(f"{url}/tarry")))
            polling.start()
            until(lambda: "tarry_long_polls 1.0" in httpx.get(f"{url}/tarry/metrics").text)
            for _ in range(10 if small else 0):
                fail(client, 100)
            process.terminate()
            assert process.wait(PROMPT_S) in (0, -signal.SIGTERM)  # as uvicorn ends: it raises the signal again
            assert source.ends()
            polling.join(PROMPT_S)
            assert statuses == [204]
            if sleeper is not None:
                sleeper.close()
        assert process.stdout.read() == "closed\n"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_one_text_is_no_list_of_queues() -> None:
    with pytest.raises(InvalidInput, match=r"queues=\['orders'\]"):
        tarry.fastapi.lifespan(queues="orders")


def test_a_queue_named_like_the_mount_is_only_a_queue(behind: AsyncApp, http_loop: Loop) -> None:
    app = FastAPI()
    app.mount("/v1", broker_app(behind, BrokerSettings(anonymous=True)))
    call = Caller(app, http_loop)
    assert call("POST", "/v1/v1/queues/v1/messages", {"payload": 1}).status_code == 201
    assert call("GET", "/v1/v1/queues/v1").json()["name"] == "v1"
