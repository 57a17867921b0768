"""Tarry over HTTP: a broker in a process of its own, and `tarry.http.Client`."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import timedelta
from typing import Any

from benchmarks.peers.adapters import tarry_library
from tarry.core.settings import QueueSettings
from tarry.http import Client


class Adapter(tarry_library.Adapter):
    def open(self, dsn: str, *, create: bool = True, lease_s: float = 3600, url: str = "") -> dict[str, Any]:
        """With `url`, a client of a broker that another process has started."""
        self._broker = None
        if url:
            self._client = Client(url)
            self._queue = self._client.queue(tarry_library.QUEUE)
            return {}
        command = [sys.executable, "-m", "tarry", "--dsn", dsn, "serve", "--port", "0", "--no-access-log"]
        if create:
            subprocess.run(
                [sys.executable, "-m", "tarry", "--dsn", dsn, "db", "migrate"], check=True, stdout=sys.stderr
            )
        self._broker = subprocess.Popen(command, stderr=subprocess.PIPE)
        assert self._broker.stderr is not None
        url = next(match[1].decode() for line in self._broker.stderr if (match := re.search(rb"on (http://\S+)", line)))
        self._client = Client(url)
        if create:
            self._client.queues.create(
                tarry_library.QUEUE, QueueSettings(lease_for=timedelta(seconds=lease_s)), exist_ok=True
            )
        self._queue = self._client.queue(tarry_library.QUEUE)
        return {"pids": [self._broker.pid], "shared": {"url": url}}

    stream = work = late = None  # pyright: ignore[reportAssignmentType] - workers run on the database

    def close(self) -> None:
        self._client.close()
        if self._broker is not None:
            self._broker.terminate()
            self._broker.wait()
