"""A Redis server of the benchmark, and what a slice of work cost it."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from benchmarks.measure import Slice, process_cpu_s
from benchmarks.results import Sample

DATABASES = 200
_REWRITES = "auto-aof-rewrite-percentage"


class RedisServer:
    """With an append-only file that is flushed with every write, as Tarry requires; each contender has its own database."""

    def __init__(self, folder: Path) -> None:
        program = shutil.which("redis-server")
        if program is None:
            raise SystemExit("redis-server is not installed (make system-packages)")
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self.port: int = listener.getsockname()[1]
        options = {
            "port": self.port, "bind": "127.0.0.1", "dir": folder, "databases": DATABASES, "save": "", "appendonly": "yes",
            "appendfsync": "always", "maxmemory-policy": "noeviction",
        }  # fmt: skip
        arguments = [part for name, value in options.items() for part in (f"--{name}", str(value))]
        self._process = subprocess.Popen([program, *arguments], stdout=subprocess.DEVNULL)
        self._used = 0
        retry = Retry(ConstantBackoff(0.05), 200)
        self._admin: Any = redis.Redis(port=self.port, retry=retry)
        self.version: str = self._admin.info("server")["redis_version"]

    def database(self) -> str:
        self._used += 1
        return f"redis://127.0.0.1:{self.port}/{self._used % DATABASES}"

    @contextmanager
    def without_rewrites(self) -> Generator[None]:
        """No rewrite of the append-only file: it forks the server with the data of every contender, and the one whose turn
        it is would pay for all. Between turns the server rewrites as by default, and the next turn waits for the end."""
        percentage = self._admin.config_get(_REWRITES)[_REWRITES]
        self._admin.config_set(_REWRITES, 0)
        try:
            while self._is_rewriting():
                time.sleep(0.05)
            yield
        finally:
            self._admin.config_set(_REWRITES, percentage)

    def _is_rewriting(self) -> bool:
        state = self._admin.info("persistence")
        return bool(state["aof_rewrite_in_progress"] or state["aof_rewrite_scheduled"])

    def cpu_s(self) -> float:
        return process_cpu_s(self._process.pid)

    def close(self) -> None:
        self._admin.close()
        self._process.terminate()
        self._process.wait()


@contextmanager
def redis_server() -> Generator[RedisServer]:
    with tempfile.TemporaryDirectory(prefix="tarry-bench-redis-") as folder:
        server = RedisServer(Path(folder))
        try:
            yield server
        finally:
            server.close()


class RedisMeter:
    """As `Meter`, for the one process of Redis."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self._spent_s = 0.0

    @contextmanager
    def slice(self) -> Generator[Slice]:
        with self._server.without_rewrites():
            measured, before, wall = Slice(), self._server.cpu_s(), time.perf_counter()
            yield measured
            measured.wall_s = time.perf_counter() - wall
            self._spent_s = self._server.cpu_s() - before

    def sample(self, measured: Slice, n: int, *, wall_s: float | None = None, spawned: bool = False) -> Sample:
        wall = wall_s or measured.wall_s
        return Sample(n=n, wall_s=wall, client_s=0.0, backend_s=self._spent_s, background_s=0.0, wal_bytes=0, commits=0)
