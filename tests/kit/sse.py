"""A client of server-sent events as a bare socket: it reads when the test calls it, and can be closed at any moment."""

from __future__ import annotations

import json
import socket
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

TIMEOUT_S = 30.0


class ServerSentEvent(NamedTuple):
    kind: str
    id: str
    data: dict[str, Any]


class EventSource:
    """`last_id` moves as the specification requires: also by a block that has an id and no data."""

    def __init__(
        self,
        url: str,
        query: str = "",
        *,
        path: str = "/v1/events",
        key: str | None = None,
        cookie: str | None = None,
        origin: str | None = None,
        last_id: str | None = None,
        announced: int | None = None,
        small: bool = False,
    ) -> None:
        """`announced`: the length of a body, which is never sent."""
        where = urlsplit(url)
        lines = [f"GET {where.path}{path}{query} HTTP/1.1", f"Host: {where.netloc}", "Accept: text/event-stream"]
        if key is not None:
            lines.append(f"Authorization: Bearer {key}")
        if cookie is not None:
            lines.append(f"Cookie: {cookie}")
        if origin is not None:
            lines.append(f"Origin: {origin}")
        if last_id is not None:
            lines.append(f"Last-Event-ID: {last_id}")
        if announced is not None:
            lines.append(f"Content-Length: {announced}")
        self.last_id = last_id
        self._raw = socket.socket()
        if small:
            self._raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._raw.settimeout(TIMEOUT_S)
        self._raw.connect((where.hostname, where.port))
        self._raw.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        self._file = self._raw.makefile("rb")
        self.status = int(self._file.readline().split()[1])
        self.headers = dict(self._header(line) for line in iter(self._file.readline, b"\r\n"))
        self._left = 0
        self.comments: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()
        self._raw.close()

    def until_hello(self) -> Self:
        """Read up to the greeting: events from here on are delivered."""
        while "hello" not in self.comments:
            assert self._block() is None, "an event came before the greeting"
        return self

    def until_ping(self) -> None:
        seen = self.comments.count("ping")
        while self.comments.count("ping") == seen:
            self._block()

    def next(self) -> ServerSentEvent:
        while (event := self._block()) is None:
            pass
        return event

    def some(self, n: int) -> list[ServerSentEvent]:
        return [self.next() for _ in range(n)]

    def ends(self) -> bool:
        """Reads to the end, which must come."""
        try:
            while True:
                self.next()
        except (EOFError, ConnectionError):
            return True

    def _block(self) -> ServerSentEvent | None:
        fields: dict[str, str] = {}
        while line := self._line():
            name, _, value = line.partition(": ")
            if name:
                fields[name] = value
            else:
                self.comments.append(value)
        self.last_id = fields.get("id", self.last_id)
        if "data" not in fields:
            return None
        return ServerSentEvent(fields["event"], fields["id"], json.loads(fields["data"]))

    def _line(self) -> str:
        """A line of the stream, whatever chunks it came in."""
        line = bytearray()
        while not line.endswith(b"\n"):
            if not self._left:
                head = self._file.readline()
                if not head:
                    raise EOFError
                self._left = int(head, 16)
                if not self._left:
                    raise EOFError
            part = self._file.readline(self._left)
            if not part:
                raise EOFError
            line += part
            self._left -= len(part)
            if not self._left:
                self._file.readline()
        return line[:-1].decode()

    @staticmethod
    def _header(line: bytes) -> tuple[str, str]:
        name, _, value = line.decode("latin-1").partition(":")
        return name.lower(), value.strip()
