"""The dependency of the demo's worker: a payment provider on loopback that can be down."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Provider:
    def __init__(self) -> None:
        self.up = True
        self.charges: Counter[str] = Counter()
        """How often each order was charged; more than once is an error."""
        self.refusals = 0
        self._lock = threading.Lock()
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.send_response(200 if provider.charged(self.path) else 503)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """No log: the demo uses the screen."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]

    def charged(self, order: str) -> bool:
        with self._lock:
            if self.up:
                self.charges[order] += 1
            else:
                self.refusals += 1
            return self.up

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
