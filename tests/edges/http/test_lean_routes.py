"""Offers, polls and settles are read by msgspec without FastAPI, and accept what the OpenAPI document describes."""

from __future__ import annotations

import asyncio
import json
import sys
from types import FrameType
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from starlette.responses import Response

from tarry.app import AsyncApp
from tarry.core.errors import InvalidInput
from tarry.edges.http.app import broker_app
from tarry.edges.http.connection_limits import ResponseTransport
from tarry.edges.http.routes import leases, messages
from tarry.edges.http.routing import AccessRoute
from tarry.edges.http.settings import BrokerSettings
from tarry.storage.memory import AsyncMemoryStore, MemoryStore
from tarry.wire.base import Request
from tarry.wire.openapi import schema_of
from tests.edges.http.conftest import Caller
from tests.kit.blocking import Loop

HOT = {
    "/v1/queues/{queue}/messages": "OfferRequest",
    "/v1/queues/{queue}/messages:poll": "PollRequest",
    "/v1/messages/{id}/ack": "SettleRequest",
    "/v1/messages/{id}/nack": "NackRequest",
    "/v1/messages/{id}/touch": "TouchRequest",
    "/v1/messages/{id}/release": "ReleaseRequest",
    "/v1/messages/{id}/bury": "BuryRequest",
}
SERVED = broker_app(AsyncApp(AsyncMemoryStore(MemoryStore())))
LEAN = [route for route in SERVED.routes if isinstance(route, AccessRoute) and route.is_lean]


class Recorder(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return False

    def close(self) -> None: ...


def struct_of(route: AccessRoute) -> type[Request] | None:
    annotation = None if route.body_field is None else route.body_field.field_info.annotation
    kinds = (annotation, *get_args(annotation))
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Request)), None)


PARSED = {struct for route in LEAN if (struct := struct_of(route)) is not None}


def test_offers_polls_and_settles_are_lean() -> None:
    posts = {route.path: struct_of(route) for route in LEAN if route.methods == {"POST"}}
    assert {path: getattr(posts.get(path), "__name__", None) for path in HOT} == HOT
    assert {struct.__name__ for struct in PARSED} >= set(HOT.values())
    assert {route.path for route in (*messages.HOT, *leases.HOT)} == set(HOT)


def test_the_head_of_a_response_is_written_with_its_body(http_loop: Loop) -> None:
    async def written(*, body_at_once: bool) -> list[bytes]:
        transport = Recorder()
        response = ResponseTransport(transport, asyncio.get_running_loop())
        response.write(b"head ")
        if not body_at_once:
            await asyncio.sleep(0)
        response.write(b"body ")
        response.write(b"more")
        await asyncio.sleep(0)
        response.close()
        return transport.written

    assert http_loop.run(written(body_at_once=True)) == [b"head body ", b"more"]
    assert http_loop.run(written(body_at_once=False)) == [b"head ", b"body ", b"more"]


def test_a_head_without_a_body_is_not_written_to_a_client_that_has_disconnected(http_loop: Loop) -> None:
    """The transport of uvloop raises then."""

    class Closed(Recorder):
        def is_closing(self) -> bool:
            return True

    async def written() -> list[bytes]:
        transport = Closed()
        ResponseTransport(transport, asyncio.get_running_loop()).write(b"head ")
        await asyncio.sleep(0)
        return transport.written

    assert http_loop.run(written()) == []


@pytest.mark.parametrize("path", ["/v1/queues/q/messages", "/v1/queues/q/messages:batch"])
def test_a_client_that_disconnects_in_its_request_is_no_error(http_loop: Loop, path: str) -> None:
    parts = iter([{"type": "http.request", "body": b'{"pay', "more_body": True}, {"type": "http.disconnect"}])
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "query_string": b"",
        "headers": [(b"host", b"localhost")],
        "client": ("127.0.0.1", 123),
        "server": ("127.0.0.1", 80),
    }
    sent: list[Any] = []

    async def receive() -> Any:
        return next(parts)

    async def send(message: Any) -> None:
        sent.append(message)

    served = broker_app(AsyncApp(AsyncMemoryStore(MemoryStore())), BrokerSettings(anonymous=True))
    http_loop.run(served(scope, receive, send))
    assert sent == []


@pytest.mark.parametrize("route", LEAN, ids=lambda route: f"{sorted(route.methods)[0]} {route.path}")
def test_a_lean_route_is_in_the_document_with_the_struct_that_it_decodes(route: AccessRoute) -> None:
    assert route.endpoint.__annotations__["return"] in (Response, "Response")  # FastAPI would convert anything else
    if not route.include_in_schema:
        return
    described = SERVED.openapi()["paths"][route.path][sorted(route.methods or ())[0].lower()]
    struct = struct_of(route)
    if struct is None:
        return
    schema = described["requestBody"]["content"]["application/json"]["schema"]
    named = {part.get("$ref", "").rpartition("/")[2] for part in (schema, *schema.get("anyOf", ()))}
    assert struct.__name__ in named


TOKEN = "3f0c3f8e-9d5c-4a71-8a5e-0d6f0b3c2a19"
INSTANT = "2030-01-31T18:00:00Z"
CHANGE = {"name": "s", "expected": None, "after": None, "decided_at": INSTANT}
ITEMS = st.sampled_from([
    "q*", "q*\n", "read", "02:00", 1, 2**63, {"payload": 1}, {"payload": 1, "after": "10m"}, {"payload": 1, "after": True},
    {"payload": 1, "retry": {"initial_for": "1m"}}, {"id": "x", "token": TOKEN}, {"id": "x", "token": TOKEN.upper()},
    {"hash": "a", "tick": INSTANT}, {"hash": "a\n", "tick": INSTANT}, CHANGE, {**CHANGE, "after": {"cursor_at": INSTANT}},
    {**CHANGE, "withdraw": [{"hash": "a", "tick": INSTANT}]}, {**CHANGE, "withdraw": [{"hash": "a\n", "tick": INSTANT}]},
])  # fmt: skip
VALUES = st.one_of(
    st.lists(ITEMS, max_size=2), st.sampled_from(["q", "q\n", "a\n"]),
    st.none(), st.booleans(), st.integers(-5, 2_000), st.integers(), st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["10m", "PT10M", "-PT5M", "P1D", "1.5", "2030-01-31T18:00:00Z", "2030-01-31T18:00:00", "text/plain",
                     "text/plain\n", "replace", "debounce", "buried", "aGk=", "", "x" * 300,
                     TOKEN, TOKEN.upper()]),
    st.text(max_size=3), st.dictionaries(st.text(max_size=2), st.text(max_size=2), max_size=2),
    st.fixed_dictionaries({}, optional={
        "initial_for": st.sampled_from([1, "1m", -1, True]), "factor": st.sampled_from([1, 2.5, "2", 11]),
        "max_attempts": st.sampled_from([0, 1, 2.0]),
    }),
)  # fmt: skip


@pytest.mark.parametrize("struct", sorted(PARSED, key=str), ids=str)
@given(data=st.data())
def test_what_msgspec_accepts_is_what_pydantic_accepts(struct: type[Request], data: st.DataObject) -> None:
    fields = st.sampled_from([*struct.__struct_fields__, "unknown"])
    body = data.draw(st.dictionaries(fields, VALUES, max_size=4))
    if "token" in struct.__struct_fields__:
        body.setdefault("token", TOKEN)
    try:
        parsed: Any = struct.parse(json.loads(json.dumps(body)))
    except (InvalidInput, ValueError):
        return  # a lean route leaves this one to pydantic
    try:
        assert TypeAdapter[Any](struct).validate_python(body) == parsed
    except (InvalidInput, ValidationError) as error:
        raise AssertionError(f"pydantic refuses {body}") from error


@pytest.mark.parametrize("anonymous", [False, True], ids=["key", "anonymous"])
@pytest.mark.parametrize("path", ["/v1/queues/q/messages", "/v1/queues/q/messages:poll"])
def test_a_hot_route_is_spared_what_costs_more_than_the_message(http_loop: Loop, path: str, *, anonymous: bool) -> None:
    app = AsyncApp(AsyncMemoryStore(MemoryStore()))
    key = None if anonymous else http_loop.run(app.keys.create("shop", ["produce", "consume"])).text
    http_loop.run(app.queues.create("q"))
    call = Caller(broker_app(app, BrokerSettings(anonymous=anonymous)), http_loop, key)
    called: list[str] = []

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            called.append(f"{frame.f_code.co_filename}:{frame.f_code.co_name}")

    body = {"payload": {"n": 1}} if path.endswith("messages") else {"max": 1}

    async def post() -> int:
        sys.setprofile(profile)
        try:
            return (await call.request("POST", path, body)).status_code
        finally:
            sys.setprofile(None)

    http_loop.run(post())
    called.clear()
    assert http_loop.run(post()) in (201, 204)
    assert called
    spared = (
        "/pydantic/",
        "/fastapi/dependencies/",
        "/fastapi/middleware/",
        "/fastapi/routing.py:app",
        "/starlette/requests.py:stream",
        "/starlette/datastructures.py:keys",
        "/prometheus_client/metrics.py:labels",
        schema_of.__code__.co_filename,
        *(("/asyncio/tasks.py:shield",) if path.endswith("messages") else ()),  # a poll shields what it has leased
    )
    assert not [name for name in called if any(part in name for part in spared)]
