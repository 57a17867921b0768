"""The processes of a run: clients of every role, brokers, schedulers, and the two proxies. Killed ones are replaced."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from tests.chaos import recording
from tests.chaos.client import Order

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 180.0
CATCHING_UP_S = 900.0
"""How long a follower may take to read what was committed while other processes had the machine."""
WORKING = ("library", "patient", "remote")


@dataclass
class Member:
    """One process and how to start it again."""

    role: str
    name: str
    process: subprocess.Popen[bytes]
    order: Order | None = None


@dataclass
class Crowd:
    """`dsn` is the way around the proxy, `proxied` the way through it."""

    dsn: str
    folder: Path
    seed: int = 1
    proxied: str | None = None
    url: str | None = None
    bug: str | None = None
    hot: float = 0.25
    offers_only: bool = False
    weights: dict[str, int] = field(default_factory=dict[str, int])
    members: list[Member] = field(default_factory=list[Member])
    started: int = 0
    _sizes: dict[Path, tuple[int, int]] = field(default_factory=dict[Path, tuple[int, int]])

    def start(self, role: str, *, tasks: int = 1, proxied: bool = False, url: str | None = None) -> Member:
        """A follower keeps its name, so that the next one goes on from its file."""
        self.started += 1
        order = Order(
            role=role,
            dsn=self.proxied if proxied and self.proxied else self.dsn,
            history=str(self.folder),
            name=("stream" if url else "feed") if role == "follower" else f"{role}-{self.started:03d}",
            seed=self.seed,
            tasks=tasks,
            url=url or self.url,
            bug=self.bug,
            hot=self.hot,
            offers_only=self.offers_only,
            weights=self.weights,
        )
        if role == "follower" and url is None:
            order = msgspec.structs.replace(order, url=None)
        return self.start_client(order)

    def start_client(self, order: Order) -> Member:
        command = [sys.executable, "-m", "tests.chaos.client", msgspec.json.encode(order).decode()]
        return self._spawn(order.role, order.name, command, order)

    def start_command(self, role: str, *arguments: str) -> Member:
        """`tarry scheduler` or `tarry serve`."""
        self.started += 1
        return self._spawn(role, f"{role}-{self.started:03d}", [sys.executable, "-m", "tarry", *arguments], None)

    def _spawn(self, role: str, name: str, command: list[str], order: Order | None) -> Member:
        environment = {**os.environ, recording.OFFSET_VARIABLE: recording.clock_offset(), "TARRY_DSN": self.dsn}
        with (self.folder / f"{name}.log").open("wb") if order is None else nullcontext() as log:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=ROOT, env=environment
            )
        member = Member(role, name, process, order)
        self.members.append(member)
        return member

    def of(self, *roles: str) -> list[Member]:
        return [member for member in self.members if member.role in roles]

    def chosen(self, chance: random.Random, *roles: str) -> Member | None:
        members = self.of(*roles)
        return chance.choice(members) if members else None

    def kill(self, member: Member) -> None:
        """Kill -9, in the middle of whatever it does."""
        self.members.remove(member)
        member.process.kill()
        member.process.wait()
        if member.process.stdin is not None:
            member.process.stdin.close()

    def replace(self, member: Member, *, clock_off_s: float = 0.0) -> None:
        """Kill it, and start another with a new name; followers keep theirs."""
        self.kill(member)
        order = member.order
        if order is None:
            self.start_command(member.role, *(str(word) for word in _arguments(member)))
            return
        self.started += 1
        name = order.name if order.role == "follower" else f"{order.role}-{self.started:03d}"
        self.start_client(msgspec.structs.replace(order, name=name, clock_off_s=clock_off_s))

    def revive(self) -> None:
        """Start brokers and schedulers again that ended because the database was away when they started."""
        for member in self.of("broker", "scheduler"):
            if member.process.poll() is not None:
                self.replace(member)

    @contextmanager
    def paused(self, member: Member) -> Generator[None]:
        """It stands still, and finds afterwards that time has passed."""
        member.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            member.process.send_signal(signal.SIGCONT)

    def stop(self, *roles: str) -> None:
        """Let them finish what they are doing. A client that ended by itself, or with an error, is a defect."""
        members = self.of(*roles)
        for member in members:
            self.members.remove(member)
            if member.order is None:
                member.process.terminate()
            assert member.process.stdin is not None
            member.process.stdin.close()
        for member in members:
            try:
                code = member.process.wait(CATCHING_UP_S if member.role == "follower" else TIMEOUT_S)
            except subprocess.TimeoutExpired:
                member.process.kill()
                member.process.wait()
                code = "no end"
            assert member.order is None or code == 0, f"{member.name} ended with {code}"

    def abandon(self) -> None:
        for member in list(self.members):
            self.kill(member)

    def operations(self) -> int:
        """How many operations have been finished so far: what faults are paced by."""
        total = 0
        for path in self.folder.glob("*.history"):
            size, lines = self._sizes.get(path, (0, 0))
            if path.stat().st_size > size:
                with path.open("rb") as file:
                    file.seek(size)
                    new = file.read()
                self._sizes[path] = size, lines = size + len(new), lines + new.count(b"\n")
            total += lines
        return total // 2

    def await_operations(self, n: int, *, timeout_s: float = TIMEOUT_S) -> None:
        """Until that many more operations were finished."""
        goal, deadline = self.operations() + n, time.monotonic() + timeout_s
        while self.operations() < goal:
            assert time.monotonic() < deadline, "the clients do nothing any more"
            self.assert_alive()
            time.sleep(0.02)

    def assert_alive(self) -> None:
        ended = [f"{m.name}: {m.process.returncode}" for m in self.members if m.order and m.process.poll() is not None]
        assert not ended, f"clients ended by themselves: {', '.join(ended)}"


def _arguments(member: Member) -> list[str]:
    command = member.process.args
    assert isinstance(command, list)
    return [str(word) for word in command[3:]]


class ProxyProcess:
    """A running `tests.kit.fault_proxy`."""

    def __init__(self, listen: str, target: str) -> None:
        self.listen = listen
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.kit.fault_proxy", listen, target],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )
        self._reply()

    def strike(self, mode: str, seconds: float, seed: int) -> int:
        """Until it is over. How many connections it hit."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{mode} {seconds} {seed}\n")
        self._process.stdin.flush()
        return int(self._reply())

    def _reply(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line, "the proxy ended by itself"
        return line

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
