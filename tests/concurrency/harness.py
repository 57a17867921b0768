"""A crowd of client processes, somebody who breaks things, and the reckoning afterwards."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import psycopg

from tarry.core.settings import Patience, QueueSettings, StoreSettings
from tarry.storage.postgres.sync import PostgresStore
from tests.concurrency.client import QUEUE, Order
from tests.concurrency.history import Verdict, check
from tests.concurrency.recording import OK, Fault, History, Left, Recorder, leased, now_us, read
from tests.storage.fallible import FallibleServer

ROOT = Path(__file__).parents[2]
LEASE = timedelta(seconds=1)
MOST_ATTEMPTS = 8
PATIENCE_S = 60.0
_PATIENT = StoreSettings(
    patience=Patience(retries=200, cap_for=timedelta(milliseconds=200), total_for=timedelta(minutes=2)),
    connect_for=timedelta(seconds=2),
)


@dataclass
class Crowd:
    """Client processes on one database. A killed one is followed by another of a new name."""

    dsn: str
    folder: Path
    seed: int = 1
    bug: str | None = None
    hot: float = 0.25
    offers_only: bool = False
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    started: int = 0

    def start(self, n: int, *, tasks: int = 1) -> None:
        for _ in range(n):
            self.started += 1
            name = f"c{self.started:03d}"
            order = Order(
                dsn=self.dsn,
                history=str(self.folder),
                name=name,
                seed=self.seed,
                tasks=tasks,
                bug=self.bug,
                hot=self.hot,
                offers_only=self.offers_only,
            )
            command = [sys.executable, "-m", "tests.concurrency.client", msgspec.json.encode(order).decode()]
            self.processes[name] = subprocess.Popen(command, stdin=subprocess.PIPE, cwd=ROOT)

    def written(self) -> int:
        """How much has been written down so far, in bytes: what the breaking of things is paced by."""
        return sum(path.stat().st_size for path in self.folder.glob("*.history"))

    def await_written(self, size: int) -> None:
        """Until that many bytes more were written."""
        goal, deadline = self.written() + size, time.monotonic() + PATIENCE_S
        while self.written() < goal:
            assert time.monotonic() < deadline, "the clients do nothing any more"
            time.sleep(0.005)

    def kill_one(self, chance: random.Random) -> None:
        """Kill -9, in the middle of whatever it does, and another one takes its place."""
        name = chance.choice(sorted(self.processes))
        process = self.processes.pop(name)
        process.kill()
        process.wait()
        if process.stdin is not None:
            process.stdin.close()
        self.start(1, tasks=1 + 7 * (self.started % 2))

    @contextmanager
    def paused(self, chance: random.Random) -> Generator[None]:
        """One of them stands still, and believes afterwards that no time has passed."""
        process = self.processes[chance.choice(sorted(self.processes))]
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Let them finish what they are doing. One that ended by itself is a bug."""
        for process in self.processes.values():
            assert process.stdin is not None
            process.stdin.close()
        codes = [process.wait(PATIENCE_S) for process in self.processes.values()]
        self.processes.clear()
        assert codes == [0] * len(codes), f"clients ended with {codes}"

    def abandon(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()
            if process.stdin is not None:
                process.stdin.close()
        self.processes.clear()


@contextmanager
def crowd(dsn: str, folder: Path, **options: Any) -> Generator[Crowd]:
    folder.mkdir(parents=True, exist_ok=True)
    prepare(dsn)
    made = Crowd(dsn, folder, **options)
    try:
        yield made
    finally:
        made.abandon()


def prepare(dsn: str) -> None:
    store = PostgresStore(dsn, settings=_PATIENT)
    store.create_queue(QUEUE, QueueSettings(lease_for=LEASE, max_attempts=MOST_ATTEMPTS), exist_ok=True)
    store.close()


class Nemesis:
    """Breaks things and writes down when. Every fault is over, and everything runs again, before the next one."""

    def __init__(self, server: FallibleServer, clients: Crowd, seed: int) -> None:
        self._server = server
        self._clients = clients
        self._chance = random.Random(seed)
        self.faults: list[Fault] = []

    def strike(self, kind: str) -> None:
        begun = now_us()
        _FAULTS[kind](self)
        self.faults.append(Fault(kind, begun, now_us()))
        with (self._clients.folder / "faults.log").open("ab") as log:
            log.write(msgspec.json.encode(self.faults[-1]) + b"\n")

    def strike_at_random(self) -> None:
        kinds = {"client killed": 30, "client paused": 15, "sessions ended": 35, "postmaster killed": 8,
                 "backend killed": 6, "stopped at once": 6}  # fmt: skip
        self.strike(self._chance.choices(list(kinds), list(kinds.values()))[0])

    def _kill_client(self) -> None:
        self._clients.kill_one(self._chance)

    def _pause_client(self) -> None:
        """For longer than a lease: it wakes with tokens that are nobody's."""
        with self._clients.paused(self._chance):
            until = time.monotonic() + LEASE.total_seconds() + 0.3
            while time.monotonic() < until:
                time.sleep(0.05)

    def _end_sessions(self) -> None:
        """Half of them, wherever they are."""
        query = """
            select count(pg_terminate_backend(pid)) from pg_stat_activity
            where application_name = 'tarry' and random() < 0.5
        """
        with psycopg.connect(self._server.dsn) as conn:
            conn.execute(query)

    def _kill_postmaster(self) -> None:
        self._server.kill()
        self._server.await_answer()

    def _kill_backend(self) -> None:
        """The server takes that for a corrupted memory, and starts anew from its log."""
        with psycopg.connect(self._server.dsn) as conn:
            rows = conn.execute("select pid from pg_stat_activity where application_name = 'tarry'").fetchall()
        for (pid,) in rows[:1]:
            self._server.kill_backend(pid)
        self._server.await_answer()

    def _stop_at_once(self) -> None:
        self._server.restart()
        self._server.await_answer()


_FAULTS: dict[str, Callable[[Nemesis], None]] = {
    "client killed": Nemesis._kill_client,
    "client paused": Nemesis._pause_client,
    "sessions ended": Nemesis._end_sessions,
    "postmaster killed": Nemesis._kill_postmaster,
    "backend killed": Nemesis._kill_backend,
    "stopped at once": Nemesis._stop_at_once,
}


def drain(dsn: str, folder: Path) -> Left:
    """Ack everything that is still there, as its leases run out, and say what is left then."""
    store = PostgresStore(dsn, settings=_PATIENT)
    recorder = Recorder(folder / "drain.history")
    deadline = time.monotonic() + PATIENCE_S
    with psycopg.connect(dsn, autocommit=True) as conn:
        while conn.execute("select 1 from tarry.message limit 1").fetchone() and time.monotonic() < deadline:
            number = recorder.begin("lease", 500)
            leases = store.lease(QUEUE, 500, lambda data, _: data)
            recorder.end(number, OK, *map(leased, leases))
            numbers = [recorder.begin("ack", lease.key, str(lease.token)) for lease in leases]
            answers = store.ack(QUEUE, [lease.hold for lease in leases])
            for number, answer in zip(numbers, answers, strict=True):
                recorder.end(number, OK, answer.value)
            due_in = store.wait(QUEUE, sleep_for=timedelta(0)).due_in
            if not leases and due_in is not None:
                time.sleep(min(due_in.total_seconds(), 0.1))
        live = [row[0].decode() for row in conn.execute("select payload from tarry.message")]
        query = "select payload, version, attempt from tarry.dead_letter"
        dead = [(payload.decode(), version, attempt) for payload, version, attempt in conn.execute(query)]
    store.close()
    return Left(live, dead)


def reckon(dsn: str, folder: Path, faults: list[Fault]) -> Verdict:
    left = drain(dsn, folder)
    return check(History(read(folder), faults, left, MOST_ATTEMPTS))


def interesting(verdict: Verdict) -> str:
    """What to look at when a promise was broken."""
    return "\n".join(f"{name}: {example}" for name, example in verdict.examples.items())
