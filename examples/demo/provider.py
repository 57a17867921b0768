"""What the demo's workers depend on: a provider on loopback that ships, charges, and can be down. It counts independently of
Tarry."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Seen(NamedTuple):
    """A delivery, by the database's clock."""

    attempt: int
    due: float
    leased: float


class Provider:
    def __init__(self) -> None:
        self.up = True
        """Whether it charges; orders are always shipped."""
        self.effects: defaultdict[str, dict[str, list[Seen]]] = defaultdict(dict)
        """By path and key; more than one for a key is an error."""
        self.refusals = 0
        self._lock = threading.Lock()
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                self.send_response(200 if provider.noted(self.path, Seen(**json.loads(body))) else 503)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """No log: the demo uses the screen."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]

    def noted(self, path: str, seen: Seen) -> bool:
        _, kind, key = path.split("/", 2)
        with self._lock:
            if kind == "payments" and not self.up:
                self.refusals += 1
                return False
            self.effects[kind].setdefault(key, []).append(seen)
            return True

    @contextmanager
    def running(self) -> Generator[Provider]:
        thread = threading.Thread(target=self._server.serve_forever, name="demo-provider", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()
