"""The OpenAPI document needs no key: it is made once, beside the event loop, and served as the same bytes."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from fastapi import FastAPI

from tarry.app import AsyncApp
from tarry.edges.http.app import broker_app
from tarry.storage.memory import AsyncMemoryStore, MemoryStore
from tests.edges.http.conftest import Caller
from tests.kit.blocking import Loop


@pytest.fixture
def served() -> FastAPI:
    return broker_app(AsyncApp(AsyncMemoryStore(MemoryStore())))


def counted(served: FastAPI) -> list[int]:
    """The threads that made the document, one for each time."""
    make, threads = served.openapi, list[int]()

    def openapi() -> dict[str, Any]:
        threads.append(threading.get_ident())
        return make()

    served.openapi = openapi
    return threads


def test_a_crowd_has_the_document_made_once_and_beside_the_loop(served: FastAPI, http_loop: Loop) -> None:
    call, threads = Caller(served, http_loop), counted(served)

    async def crowd() -> tuple[int, set[bytes]]:
        responses = await asyncio.gather(*(call.request("GET", path) for path in ["/openapi.json"] * 5))
        return threading.get_ident(), {response.content for response in responses}

    loop_thread, bodies = http_loop.run(crowd())
    assert len(bodies) == 1
    call("GET", "/openapi.json")
    assert len(threads) == 1
    assert loop_thread not in threads


def test_the_page_is_made_once_and_beside_the_loop(served: FastAPI, http_loop: Loop) -> None:
    async def thread() -> int:
        return threading.get_ident()

    call, threads = Caller(served, http_loop), counted(served)
    assert call("GET", "/docs").content == call("GET", "/docs").content
    assert len(threads) == 1
    assert http_loop.run(thread()) not in threads


def test_the_document_is_not_sent_to_a_client_that_has_it(served: FastAPI, http_loop: Loop) -> None:
    call = Caller(served, http_loop)
    tag = call("GET", "/openapi.json").headers["etag"]
    again = call("GET", "/openapi.json", headers={"if-none-match": tag})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert call("GET", "/openapi.json", headers={"if-none-match": '"other"'}).status_code == 200


def test_a_mounted_broker_names_the_path_it_is_mounted_at(served: FastAPI, http_loop: Loop) -> None:
    outer = FastAPI()
    outer.mount("/tarry", served)
    mounted = Caller(outer, http_loop)("GET", "/tarry/openapi.json").json()
    alone = Caller(served, http_loop)("GET", "/openapi.json").json()
    assert mounted.pop("servers") == [{"url": "/tarry"}]
    assert mounted == alone == served.openapi()
