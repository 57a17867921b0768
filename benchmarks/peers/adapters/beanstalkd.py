# pyright: reportMissingImports=false
"""beanstalkd with its binlog flushed for every write (`-f 0`): a reference outside PostgreSQL."""

from __future__ import annotations

import json
import socket
import subprocess
import tempfile
import time
from typing import Any

import greenstalk

from benchmarks.peers.adapters.agent import Unsupported, Watch, body


class Adapter:
    def open(self, dsn: str, *, create: bool = True, lease_s: float = 3600) -> dict[str, Any]:
        if not create:
            raise Unsupported("measured with one consumer")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self._home = tempfile.TemporaryDirectory(prefix="beanstalkd-")
        command = ["beanstalkd", "-l", "127.0.0.1", "-p", str(port), "-b", self._home.name, "-f", "0"]
        self._server = subprocess.Popen(command)
        for _ in range(100):
            try:
                self._client = greenstalk.Client(("127.0.0.1", port))
                break
            except OSError:
                time.sleep(0.05)
        self._lease_s = int(lease_s)
        return {"pids": [self._server.pid]}

    def produce(
        self, *, seconds: float = 1e9, batch: int = 1, most: int | None = None, delay_s: float = 0
    ) -> dict[str, Any]:
        if batch > 1 and seconds < 1e9:
            raise Unsupported("its protocol has no batches")
        watch = Watch(seconds, most)
        while watch.goes_on:
            self._client.put(json.dumps(body(watch.n)), delay=int(delay_s), ttr=self._lease_s)
            watch.step(1)
        return watch.result()

    def consume(self, *, seconds: float, batch: int = 1, most: int | None = None) -> dict[str, Any]:
        if batch > 1:
            raise Unsupported("its protocol has no batches")
        watch = Watch(seconds, most)
        while watch.goes_on:
            try:
                job = self._client.reserve(timeout=0)
            except greenstalk.TimedOutError:
                break
            json.loads(job.body)
            self._client.delete(job)
            watch.step(1)
        return watch.result()

    def close(self) -> None:
        self._client.close()
        self._server.terminate()
        self._server.wait()
        self._home.cleanup()
