"""Middleware around every request: a request id, limits on size and time, an access log line, and security headers."""

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Callable
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tarry.edges.http.settings import BrokerSettings

_access = logging.getLogger("tarry.http.access")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
]
_STREAMED = "tarry.streamed"


def accept_stream(scope: Any) -> None:
    """Limit only the wait for the next part, for a route that reads its body in parts and limits its size itself."""
    scope[_STREAMED] = True


class RequestMiddleware:
    def __init__(
        self, app: ASGIApp, settings: BrokerSettings, on_response: Callable[[str, str, int, float], None]
    ) -> None:
        """`on_response` is called after every request with its method, route, status and seconds."""
        self._app = app
        self._settings = settings
        self._on_response = on_response

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        request_id = headers.get(b"x-request-id", b"").decode("latin-1")
        if not _REQUEST_ID.fullmatch(request_id):
            request_id = secrets.token_hex(8)
        scope["tarry.request_id"] = request_id
        started, status = time.monotonic(), 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = {name.lower() for name, _ in message.get("headers", ())}
                added = [pair for pair in _HEADERS if pair[0] not in own]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id.encode()), *added]
            await send(message)

        try:
            await self._app(scope, self._limited(scope, receive, headers.get(b"content-length", b"0")), sending)
        except ClientDisconnect:
            pass  # before its request was complete: not an error, and no response is possible
        finally:
            took_s = time.monotonic() - started
            # The route's template, not the path: keys of messages and queries stay out of the log.
            route = getattr(scope.get("route"), "path_format", None) or "-"
            key = getattr(scope.get("tarry.caller"), "id", "-")
            line = "%s %s %d %.1fms key=%s request=%s"
            _access.info(line, scope["method"], route, status, took_s * 1000, key, request_id)
            self._on_response(scope["method"], route, status, took_s)

    def _limited(self, scope: Scope, receive: Receive, content_length: bytes) -> Receive:
        limit, body_s = self._settings.body_limit, self._settings.body_for.total_seconds()
        announced = int(content_length) if content_length.isdigit() and len(content_length) < 20 else 0
        read, complete = 0, False
        deadline = time.monotonic() + body_s

        async def receiving() -> Message:
            nonlocal read, complete
            if complete:
                return await receive()
            streamed = _STREAMED in scope
            if not streamed and announced > limit:
                raise HTTPException(413, f"a request has at most {limit:,} bytes")
            try:
                async with asyncio.timeout(body_s if streamed else max(0.0, deadline - time.monotonic())):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, f"the request was not sent within {body_s:g} seconds") from None
            read += len(message.get("body", b""))
            if read > limit and not streamed:
                raise HTTPException(413, f"a request has at most {limit:,} bytes")
            complete = message["type"] == "http.request" and not message.get("more_body", False)
            return message

        return receiving
