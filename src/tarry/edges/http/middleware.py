"""Around every request: an id, limits on its size and pace, one line in the log, the headers that every answer has."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Callable
from typing import Any

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tarry.edges.http.problems import Problem
from tarry.edges.http.settings import BrokerSettings

_access = logging.getLogger("tarry.http.access")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")
_ALWAYS = [
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
]


Heard = Callable[[str, str, int, float], None]
_STREAMED = "tarry.streamed"


def takes_a_stream(scope: Any) -> None:
    """Said by a route that reads its body bit by bit, and bounds it itself: only the wait for the next bit has an end."""
    scope[_STREAMED] = True


class Guard:
    def __init__(self, app: ASGIApp, settings: BrokerSettings, heard: Heard) -> None:
        """`heard` is told of every answer: method, route, status, seconds."""
        self._app = app
        self._settings = settings
        self._heard = heard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        request_id = _request_id(headers.get(b"x-request-id"))
        scope["tarry.request_id"] = request_id
        started, status = time.monotonic(), 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = {name.lower() for name, _ in message.get("headers", ())}
                added = [pair for pair in _ALWAYS if pair[0] not in own]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id.encode()), *added]
            await send(message)

        try:
            await self._app(scope, self._limited(scope, receive, _announced(headers)), sending)
        finally:
            took_s = time.monotonic() - started
            _log(scope, status, took_s)
            self._heard(scope["method"], _route(scope), status, took_s)

    def _limited(self, scope: Scope, receive: Receive, announced: int) -> Receive:
        read, complete = 0, False
        patience_s = self._settings.body_for.total_seconds()
        deadline = time.monotonic() + patience_s

        async def receiving() -> Message:
            nonlocal read, complete
            if complete:
                return await receive()
            streamed = _STREAMED in scope
            if not streamed and announced > self._settings.body_limit:
                raise HTTPException(413, _too_large(self._settings).detail)
            try:
                async with asyncio.timeout(patience_s if streamed else max(0.0, deadline - time.monotonic())):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, "the request was not sent in time") from None
            read += len(message.get("body", b""))
            if read > self._settings.body_limit and not streamed:
                raise HTTPException(413, _too_large(self._settings).detail)
            complete = message["type"] == "http.request" and not message.get("more_body", False)
            return message

        return receiving


def _too_large(settings: BrokerSettings) -> Problem:
    return Problem(413, "too_large", f"a request has at most {settings.body_limit:,} bytes")


def _announced(headers: dict[bytes, bytes]) -> int:
    said = headers.get(b"content-length", b"0")
    return int(said) if said.isdigit() and len(said) < 20 else 0


def _request_id(given: bytes | None) -> str:
    said = "" if given is None else given.decode("latin-1")
    return said if _REQUEST_ID.fullmatch(said) else secrets.token_hex(8)


def _route(scope: Scope) -> str:
    route: Any = scope.get("route")
    return getattr(route, "path_format", None) or "-"


def _log(scope: Scope, status: int, took_s: float) -> None:
    """The route as it is written, not as it was asked: keys of messages and queries stay out of the log."""
    caller: Any = scope.get("tarry.caller")
    _access.info(
        "%s %s %d %.1fms key=%s request=%s",
        scope["method"],
        _route(scope),
        status,
        took_s * 1000,
        "-" if caller is None else caller.id,
        scope["tarry.request_id"],
    )
