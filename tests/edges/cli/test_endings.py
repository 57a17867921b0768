"""Every process of ours ends within five seconds of SIGTERM and its grace, whatever the database or a client does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import httpx
import psycopg
import pytest

import tarry
from tests.kit.ports import free_port
from tests.storage.postgres.fallible import FallibleServer, fallible_server

GRACE_S = 1.0
PROMISED_S = 5.0
LOADED_S = 8.0
"""What a busy machine may add: other tests run beside this one."""
READY_S = 60.0
JOBS = """
import asyncio
import tarry

worker = tarry.Worker()

@worker.handler("jobs")
async def job(payload: str) -> None:
    print("handling", flush=True)
    await asyncio.Event().wait()

idle = tarry.Worker()

@idle.handler("none")
async def none(payload: str) -> None: ...
"""
Trouble = Callable[[FallibleServer], AbstractContextManager[None]]


@pytest.fixture(scope="module")
def server() -> Iterator[FallibleServer]:
    with fallible_server() as server:
        yield server


class Process:
    """One command. What it prints is read as it comes, so that it never waits for a reader."""

    def __init__(self, dsn: str, cwd: Path, ready: str, *args: str) -> None:
        self.name = args[0]
        self._lines: list[str] = []
        self._printed = threading.Condition()
        environment = {**os.environ, "TARRY_DSN": dsn, "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, "-m", "tarry", *args]
        self._popen = subprocess.Popen(
            command, env=environment, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._ready = ready

    def _read(self) -> None:
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            with self._printed:
                self._lines.append(line)
                self._printed.notify_all()

    def started(self) -> None:
        with self._printed:
            is_ready = self._printed.wait_for(lambda: any(self._ready in line for line in self._lines), READY_S)
        assert is_ready, (self.name, self._lines)

    def terminated_in(self, within_s: float) -> float:
        """How long it took from SIGTERM to its end."""
        since = time.monotonic()
        self._popen.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(within_s)
            return time.monotonic() - since
        return float("inf")

    def kill(self) -> None:
        if self._popen.poll() is None:
            self._popen.kill()
        self._popen.wait()
        self._reader.join(READY_S)
        assert self._popen.stdout is not None
        self._popen.stdout.close()

    @property
    def output(self) -> str:
        return "".join(self._lines)


def all_processes(dsn: str, cwd: Path, port: int) -> list[Process]:
    (cwd / "jobs.py").write_text(JOBS)
    grace = f"{GRACE_S:g}s"
    return [
        Process(dsn, cwd, "listening on", "serve", "--port", str(port), "--grace", grace),
        Process(dsn, cwd, "handling", "worker", "jobs:worker", "--grace", grace),
        Process(dsn, cwd, "working on", "worker", "jobs:idle", "--grace", grace, "--processes", "2"),
        Process(dsn, cwd, "planning", "scheduler"),
        Process(dsn, cwd, "leads", "sweeper", "--every", "100ms"),
        Process(dsn, cwd, "Ctrl-C stops it", "dev", "--port", "0"),
    ]


@contextmanager
def frozen(server: FallibleServer) -> Iterator[None]:
    """No process of the server runs, and its clients are not notified."""
    stopped = [server.postmaster, *children(server.postmaster)]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in reversed(stopped):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def children(pid: int) -> list[int]:
    return [
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    ]


@contextmanager
def gone(server: FallibleServer) -> Iterator[None]:
    server.stop()
    try:
        yield
    finally:
        server.start()
        server.await_ready()


@contextmanager
def locked(server: FallibleServer) -> Iterator[None]:
    """Another transaction has locked everything that is needed for anything."""
    with psycopg.connect(server.dsn) as conn:
        conn.execute("lock table tarry.message, tarry.queue, tarry.leader, tarry.waiter, tarry.schedule")
        yield
        conn.rollback()


@contextmanager
def well(server: FallibleServer) -> Iterator[None]:
    yield


SLOW = pytest.mark.chaos


@pytest.mark.parametrize(
    "trouble",
    [frozen, gone, pytest.param(locked, marks=SLOW), pytest.param(well, marks=SLOW)],
    ids=lambda trouble: trouble.__name__,
)
def test_every_process_ends_in_time(server: FallibleServer, tmp_path: Path, trouble: Trouble) -> None:
    port = free_port()
    with tarry.connect(server.dsn) as app:
        app.queue("jobs").offer(str(tmp_path), "never done")
    processes = all_processes(server.dsn, tmp_path, port)
    try:
        for process in processes:
            process.started()
        with client_that_waits(port), trouble(server):
            within_s = GRACE_S + PROMISED_S + LOADED_S
            with ThreadPoolExecutor(len(processes)) as threads:
                took = list(threads.map(lambda process: process.terminated_in(within_s), processes))
            assert max(took) < within_s, [
                (process.name, s, process.output) for process, s in zip(processes, took, strict=True)
            ]
    finally:
        for process in processes:
            process.kill()


@contextmanager
def client_that_waits(port: int) -> Iterator[None]:
    """A long poll that is open, and an offer that is sent into the trouble."""

    def poll() -> None:
        with suppress(httpx.HTTPError):
            httpx.post(f"http://127.0.0.1:{port}/v1/queues/empty/messages:poll", json={"wait": 60}, timeout=60)

    def offer() -> None:
        with suppress(httpx.HTTPError):
            httpx.post(f"http://127.0.0.1:{port}/v1/queues/offered/messages", json={"payload": 1}, timeout=60)

    threads = [threading.Thread(target=target, daemon=True) for target in (poll, offer)]
    for thread in threads:
        thread.start()
    yield


@pytest.mark.chaos
def test_the_pipeline_ends_in_time_while_the_database_is_frozen(server: FallibleServer, tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    run = Process(
        server.dsn, tmp_path, '"ok"', "pipeline", "run", "archive", "--lake", lake, "--every", "1s", "-o", "jsonl"
    )
    within_s = PROMISED_S + LOADED_S
    try:
        run.started()
        with frozen(server):
            assert run.terminated_in(within_s) < within_s, run.output
        assert "Traceback" not in run.output
    finally:
        run.kill()
