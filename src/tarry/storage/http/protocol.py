"""Requests and responses of HTTP/1.1 as bytes, for the blocking and the awaiting connections."""

import ssl
from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple
from urllib.parse import quote, urlencode, urlsplit

import httptools
import msgspec

from tarry.core.errors import InvalidInput
from tarry.storage.http.call import Call
from tarry.wire.base import plain

_REPLY_S = 30.0
_PORTS = {"http": 80, "https": 443}


class HttpRequest(NamedTuple):
    data: bytes
    connect_s: float
    reply_s: float
    """How long the broker may be silent."""


class Address:
    """Where a broker is, and the headers of every request to it."""

    def __init__(self, url: str, key: str | None) -> None:
        try:
            parts = urlsplit(url)
            self.host, self.port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
            if not self.host or "@" in parts.netloc:
                raise ValueError("no host, or a password")
        except (ValueError, KeyError, AttributeError):
            # Without the text, which may contain a password.
            raise InvalidInput(
                "this is not the URL of a broker", hint="write http://HOST:PORT or https://HOST; the key is key=…"
            ) from None
        self.is_secure = parts.scheme == "https"
        self._prefix = parts.path.rstrip("/")
        named = {"host": parts.netloc, "user-agent": "tarry"}
        self._headers = _header_lines(named if key is None else {**named, "authorization": f"Bearer {key}"})

    @cached_property
    def tls(self) -> ssl.SSLContext | None:
        return ssl.create_default_context() if self.is_secure else None

    def request(self, call: Call, connect_s: float, headers: Mapping[str, str] = {}) -> HttpRequest:
        target = quote(self._prefix + call.path, safe="/%:")
        if given := {name: value for name, value in (call.params or {}).items() if value is not None}:
            target += "?" + urlencode(given, doseq=True)
        own, body = dict(headers), b""
        if call.key:
            own["idempotency-key"] = call.key
        if call.body is not None:
            own["content-type"] = "application/json"
            body = msgspec.json.encode(call.body, enc_hook=plain)
        own["content-length"] = str(len(body))
        head = f"{call.method} {target} HTTP/1.1\r\n{self._headers}{_header_lines(own)}\r\n"
        return HttpRequest(head.encode() + body, connect_s, _REPLY_S + call.wait_s)


def _header_lines(headers: Mapping[str, str]) -> str:
    for name, value in headers.items():
        if not (value.isascii() and value.isprintable()):
            raise InvalidInput(f"{name} must be printable ASCII characters, got {value!r:.100}")
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items())


class HttpResponse:
    """A response, as far as it was received."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[bytes, bytes] = {}
        self._parts: list[bytes] = []
        self.status = 0
        """0 until the head is complete."""
        self.is_complete = False
        self.keeps_alive = False
        """Whether another request may follow on the connection."""

    def receive(self, data: bytes) -> None:
        """Bytes of the broker; none when it has closed the connection."""
        if not data:
            is_framed = b"content-length" in self._headers or b"transfer-encoding" in self._headers
            if not self.status or is_framed:
                raise ConnectionError("the connection was closed before the end of the response")
            self.is_complete = True
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise ConnectionError(f"the response is not HTTP: {error}") from error

    def header(self, name: bytes) -> str:
        return self._headers.get(name, b"").decode("latin-1")

    def take_body(self) -> bytes:
        """The bytes of the body that were received since the last call."""
        parts, self._parts = self._parts, []
        return b"".join(parts)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200:  # otherwise another one follows
            self.status = status
            self.keeps_alive = self._parser.should_keep_alive()

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_message_complete(self) -> None:
        self.is_complete = self.status > 0
