"""Real `tarry worker` processes, and the database that they and the test look at."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

import tarry
from tarry.app import App
from tests.services.worker_module import HANDLER_LOCK

TIMEOUT_S = 60.0
ROOT = Path(__file__).parents[2]
TARGET = "tests.services.worker_module:worker"


class Program:
    """One `tarry worker`. Its log is read as it is written."""

    def __init__(self, dsn: str, *options: str, target: str = TARGET, cwd: Path = ROOT, lease_s: float = 30.0) -> None:
        """`lease_s`: short only where a test waits for its end. A busy machine may be late with a heartbeat."""
        self._lines: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tarry", "worker", target, "--json", *options],
            cwd=cwd,
            env={
                **os.environ,
                "TARRY_DSN": dsn,
                "JOBS_LEASE_S": str(lease_s),
                "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.pid = self._process.pid
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self._lines.append(json.loads(line) if line.startswith("{") else {"message": line})
                self._changed.notify_all()

    @property
    def messages(self) -> list[str]:
        with self._changed:
            return [str(line.get("message", line)) for line in self._lines]

    @property
    def pids(self) -> list[int]:
        """Of all processes that have printed a line, in the order of their first lines."""
        with self._changed:
            return list(dict.fromkeys(line["pid"] for line in self._lines if "pid" in line))

    def await_line(self, text: str, n: int = 1) -> None:
        with self._changed:
            printed = self._changed.wait_for(lambda: sum(text in str(line) for line in self._lines) >= n, TIMEOUT_S)
        assert printed, f"{text!r} was not printed {n} times, but {self.messages}"

    def started(self) -> Program:
        self.await_line("working on")
        return self

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def await_end(self) -> int:
        code = self._process.wait(TIMEOUT_S)
        self._reader.join(TIMEOUT_S)
        return code

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(TIMEOUT_S)
        self._reader.join(TIMEOUT_S)
        assert self._process.stdout is not None
        self._process.stdout.close()


class Scene:
    """A database with a ledger, a lock that blocks handlers, and programs that end with the test."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.app: App = tarry.connect(dsn)
        self.jobs = self.app.queue("jobs")
        self._conn = psycopg.connect(dsn, autocommit=True)
        self._conn.execute(
            "create table if not exists handled_by (id serial, key text, attempt int, pid int, what text)"
        )
        self._programs: list[Program] = []

    def program(self, *options: str, **options_by_name: Any) -> Program:
        program = Program(self.dsn, *options, **options_by_name)
        self._programs.append(program)
        return program

    def block_handlers(self) -> None:
        self._conn.execute("select pg_advisory_lock(%s)", (HANDLER_LOCK,))

    def release_handlers(self) -> None:
        self._conn.execute("select pg_advisory_unlock_all()")

    def ledger(self, what: str) -> list[tuple[str, int, int]]:
        """Key, attempt and process of what has started or finished, in order."""
        return self._conn.execute(
            "select key, attempt, pid from handled_by where what = %s order by id", (what,)
        ).fetchall()

    def until(self, condition: Callable[[], Any]) -> None:
        """Poll the database until the condition holds."""
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < deadline, f"it did not come to that; the programs printed {self.output()}"
            self._conn.execute("select pg_sleep(0.01)")

    def until_started(self, n: int) -> None:
        self.until(lambda: len(self.ledger("started")) >= n)

    def until_empty(self) -> None:
        self.until(lambda: self._live() == 0)

    def numbers(self) -> tuple[int, int]:
        """Ready, leased."""
        counts = self.app.queues.counts("jobs")
        return counts.ready.n, counts.leased.n

    def kinds(self, key: str) -> list[str]:
        return [event.kind.value for event in self.app.store.run(self.app.store.journal.timeline("jobs", key))]

    def output(self) -> list[list[str]]:
        return [program.messages for program in self._programs]

    def _live(self) -> int:
        counts = self.app.queues.counts("jobs")
        return counts.ready.n + counts.leased.n + counts.delayed.n

    def close(self) -> None:
        for program in self._programs:
            program.close()
        self._conn.close()
        self.app.close()


@contextmanager
def scene_on(dsn: str) -> Iterator[Scene]:
    scene = Scene(dsn)
    try:
        yield scene
    finally:
        scene.close()
