"""Redis servers of our own, on free ports of the loopback interface; stopped with the session."""

from __future__ import annotations

import shutil
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from tests.kit.directories import new_directory

START_S = 20.0


class RedisServer:
    """One server with an append-only file in a directory of its own. `kill` and `start` keep its data."""

    def __init__(self, *options: str) -> None:
        program = shutil.which("redis-server")
        if program is None:
            pytest.skip("redis-server is not installed (make system-packages)")
        self._program = program
        self._options = options
        self.directory = new_directory("tarry-redis-")
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.start()

    def start(self) -> None:
        with Path(self.directory, "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    self._program,
                    *("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.directory)),
                    *("--appendonly", "yes", "--save", "", "--daemonize", "no", *self._options),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.await_ready()

    def await_ready(self) -> None:
        """Retried by the driver until it listens and has loaded its data."""
        retry = Retry(ConstantBackoff(0.02), int(START_S / 0.02))
        with redis.Redis(port=self.port, retry=retry, retry_on_error=[redis.BusyLoadingError]) as client:
            client.ping()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        with suppress(ProcessLookupError):
            self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
