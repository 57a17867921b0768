"""A payment provider on loopback that fails every second request, declines some cards, and charges each order once."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Provider:
    def __init__(self) -> None:
        self.charged: dict[str, int] = {}
        """Totals, by idempotency key."""
        self.requests: Counter[str] = Counter()
        """By the client that sent them."""
        self.refusals = 0
        self._lock = threading.Lock()

    def charge(self, key: str, client: str, card: str, total: int) -> int:
        """The status of the response."""
        with self._lock:
            self.requests[client] += 1
            if self.requests.total() % 2:
                self.refusals += 1
                return 503
            if card == "declined":
                return 402
            self.charged.setdefault(key, total)
            return 200

    @contextmanager
    def running(self) -> Generator[str]:
        """Its address."""
        provider = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                key, client = self.headers["idempotency-key"], self.headers["user-agent"]
                self.send_response(provider.charge(key, client, body["card"], body["total"]))
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """No log: the example prints its own."""

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            server.daemon_threads = True
            thread = threading.Thread(target=server.serve_forever, name="provider", daemon=True)
            thread.start()
            try:
                yield f"http://127.0.0.1:{server.server_address[1]}"
            finally:
                server.shutdown()
                thread.join()
