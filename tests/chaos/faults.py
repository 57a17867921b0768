"""The faults: what each kind does, and the schedule of a run, which follows from its seed."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import LiteralString

import msgspec
import psycopg

from tests.chaos.cluster import Cluster
from tests.chaos.crowd import ROOT, WORKING, Crowd, ProxyProcess
from tests.chaos.layout import LEASE_S
from tests.chaos.recording import Fault, now_us

LOAD = 300
"""Operations that clients finish between the steps of a failover."""


@dataclass(slots=True)
class Scene:
    """What faults are done to. Where a part is missing, its kinds are not available."""

    cluster: Cluster
    crowd: Crowd
    proxy: ProxyProcess | None = None
    broker_proxy: ProxyProcess | None = None

    @property
    def dsn(self) -> str:
        return self.cluster.server.dsn

    def load(self) -> None:
        self.crowd.await_operations(LOAD)


@dataclass(frozen=True, slots=True)
class Kind:
    """`weight`: how often, against the others. `slow`: takes seconds by itself, and is left out of short runs."""

    name: str
    act: Callable[[Scene, random.Random], object]
    weight: int
    crash: bool = False
    forgets: bool = False
    slow: bool = False
    missing: Callable[[Scene], str | None] = lambda scene: None
    """Why it cannot be done here."""


def _kill_client(scene: Scene, chance: random.Random) -> object:
    member = scene.crowd.chosen(chance, *WORKING)
    assert member is not None
    return scene.crowd.replace(member)


def _pause_client(scene: Scene, chance: random.Random) -> object:
    """For longer than a lease: it wakes with tokens that are void."""
    member = scene.crowd.chosen(chance, *WORKING, "worker")
    assert member is not None
    with scene.crowd.paused(member):
        time.sleep(LEASE_S + chance.uniform(0.2, 0.6))


def _set_clock_off(scene: Scene, chance: random.Random) -> object:
    """A client is replaced by one whose wall clock is hours off."""
    member = scene.crowd.chosen(chance, *WORKING, "worker")
    assert member is not None
    return scene.crowd.replace(member, clock_off_s=chance.choice([-7200.0, -3.0, 3.0, 7200.0]))


def _end_sessions(scene: Scene, chance: random.Random) -> object:
    """Half of them, wherever they are."""
    query = (
        "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name like 'tarry%%'"
        " and random() < 0.5"
    )
    with psycopg.connect(scene.dsn) as conn:
        return conn.execute(query).fetchone()


def _backends(scene: Scene) -> list[int]:
    query = (
        "select pid from pg_stat_activity where application_name like 'tarry%%' order by (state = 'active') desc, pid"
    )
    with psycopg.connect(scene.dsn) as conn:
        return [pid for (pid,) in conn.execute(query)]


def _kill_backend(scene: Scene, chance: random.Random) -> object:
    """The server takes that for corrupted memory, and restarts all of its processes."""
    for pid in _backends(scene)[:1]:
        scene.cluster.server.kill_backend(pid)
    scene.cluster.server.await_ready()


def _freeze_backend(scene: Scene, chance: random.Random) -> object:
    """A session stands still in the middle of a statement, with its locks; clients see a server that hangs."""
    frozen = _backends(scene)[:2]
    for pid in frozen:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(chance.uniform(0.3, 1.5))
    finally:
        for pid in frozen:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
    return len(frozen)


def _kill_postmaster(scene: Scene, chance: random.Random) -> object:
    scene.cluster.server.kill()
    scene.cluster.server.await_ready()


def _stop_at_once(scene: Scene, chance: random.Random) -> object:
    scene.cluster.server.restart()
    scene.cluster.server.await_ready()


def _through(mode: str, *, broker: bool = False) -> Callable[[Scene, random.Random], object]:
    def act(scene: Scene, chance: random.Random) -> object:
        proxy = scene.broker_proxy if broker else scene.proxy
        assert proxy is not None
        seconds = chance.uniform(0.4, 0.8) if mode in ("cut", "swallow") else chance.uniform(1.0, 2.5)
        return proxy.strike(mode, round(seconds, 3), chance.randrange(10**6))

    return act


def _fail_over(scene: Scene, chance: random.Random) -> object:
    scene.cluster.fail_over(scene.load, synchronous=True)


def _fail_over_behind(scene: Scene, chance: random.Random) -> object:
    return scene.cluster.fail_over(scene.load, synchronous=False)


def _replace(*roles: str) -> Callable[[Scene, random.Random], object]:
    def act(scene: Scene, chance: random.Random) -> object:
        member = scene.crowd.chosen(chance, *roles)
        assert member is not None
        return scene.crowd.replace(member)

    return act


def _pause_scheduler(scene: Scene, chance: random.Random) -> object:
    member = scene.crowd.chosen(chance, "scheduler")
    assert member is not None
    with scene.crowd.paused(member):
        time.sleep(chance.uniform(1.0, 3.0))


def _fill_disk(scene: Scene, chance: random.Random) -> object:
    return scene.cluster.fill_disk(chance.uniform(2.0, 4.0))


def _lock_rows(scene: Scene, chance: random.Random) -> object:
    """Another application's transaction holds live messages for seconds."""
    with psycopg.connect(scene.dsn, application_name="foreign") as conn:
        query = "select key from tarry.message where random() < 0.3 limit 20 for update skip locked"
        held = conn.execute(query).fetchall()
        time.sleep(chance.uniform(1.0, 3.0))
        conn.rollback()
    return len(held)


def _maintain(*statements: LiteralString) -> Callable[[Scene, random.Random], object]:
    def act(scene: Scene, chance: random.Random) -> object:
        with psycopg.connect(scene.dsn, autocommit=True, application_name="foreign") as conn:
            for statement in statements:
                conn.execute(statement)

    return act


def _dump(scene: Scene, chance: random.Random) -> object:
    program = _pg_dump(scene)
    assert program is not None
    command = [program, "--schema=tarry", f"--dbname={scene.dsn}"]
    done = subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    return f"status {done.returncode} {done.stderr.strip()[-200:]}".strip()


def _pg_dump(scene: Scene) -> str | None:
    """One that is not older than the server."""
    with psycopg.connect(scene.dsn) as conn:
        row = conn.execute("select setting from pg_config where name = 'BINDIR'").fetchone()
    assert row is not None
    program = Path(row[0]) / "pg_dump"
    return str(program) if program.exists() else shutil.which("pg_dump")


def _tarry(*arguments: str) -> Callable[[Scene, random.Random], object]:
    def act(scene: Scene, chance: random.Random) -> object:
        environment = {**os.environ, "TARRY_DSN": scene.dsn}
        done = subprocess.run(
            [sys.executable, "-m", "tarry", *arguments], cwd=ROOT, env=environment, capture_output=True, check=False
        )
        return done.returncode

    return act


def _run_pipeline(scene: Scene, chance: random.Random) -> object:
    """It runs beside the clients, and through the next faults. Whether it ends well is checked in `tests/edges/spark`."""
    for member in scene.crowd.of("pipeline"):
        if member.process.poll() is not None:
            scene.crowd.kill(member)
    if not scene.crowd.of("pipeline"):
        scene.crowd.start_command("pipeline", "pipeline", "run", "--lake", str(scene.crowd.folder / "lake"))


def _no_proxy(scene: Scene) -> str | None:
    return None if scene.proxy else "no client goes through the proxy"


def _no_broker(scene: Scene) -> str | None:
    return None if scene.broker_proxy else "no broker runs"


def _no_disk(scene: Scene) -> str | None:
    return None if scene.cluster.has_own_disk else "only root can give the server a disk of its own"


def _none_of(*roles: str) -> Callable[[Scene], str | None]:
    return lambda scene: None if scene.crowd.of(*roles) else f"no {' or '.join(roles)} runs"


KINDS = {
    kind.name: kind
    for kind in (
        Kind("client killed", _kill_client, 40),
        Kind("client paused beyond its leases", _pause_client, 20),
        Kind("client with a wrong clock", _set_clock_off, 10),
        Kind("worker killed", _replace("worker"), 8, missing=_none_of("worker")),
        Kind("sessions terminated", _end_sessions, 25),
        Kind("backend killed", _kill_backend, 6, crash=True),
        Kind("backend frozen", _freeze_backend, 15),
        Kind("postmaster killed", _kill_postmaster, 8, crash=True),
        Kind("immediate stop", _stop_at_once, 6, crash=True),
        Kind("network delayed", _through("delay"), 12, missing=_no_proxy),
        Kind("connections cut in a statement", _through("cut"), 15, missing=_no_proxy),
        Kind("replies swallowed", _through("swallow"), 20, missing=_no_proxy),
        Kind("connections half-open", _through("half-open"), 10, missing=_no_proxy),
        Kind("partition: replies lost", _through("mute"), 10, missing=_no_proxy),
        Kind("partition: requests lost", _through("deaf"), 8, missing=_no_proxy),
        Kind("failover to a synchronous standby", _fail_over, 5, crash=True, slow=True),
        Kind("failover to an asynchronous standby", _fail_over_behind, 2, crash=True, forgets=True, slow=True),
        Kind("broker killed", _replace("broker"), 10, missing=_none_of("broker")),
        Kind("broker's replies cut", _through("swallow", broker=True), 12, missing=_no_broker),
        Kind("broker partitioned: replies lost", _through("mute", broker=True), 6, missing=_no_broker),
        Kind("scheduler killed", _replace("scheduler"), 8, missing=_none_of("scheduler")),
        Kind("scheduler paused", _pause_scheduler, 8, missing=_none_of("scheduler")),
        Kind("follower killed", _replace("follower"), 6, missing=_none_of("follower")),
        Kind("disk full", _fill_disk, 4, crash=True, missing=_no_disk),
        Kind("rows held by a foreign transaction", _lock_rows, 12),
        Kind("vacuum", _maintain("vacuum (analyze, index_cleanup on) tarry.message"), 6),
        Kind("vacuum full", _maintain("vacuum full tarry.message"), 4),
        Kind("index rebuilt", _maintain("reindex table tarry.message"), 3),
        Kind("pg_dump", _dump, 5, missing=lambda scene: None if _pg_dump(scene) else "no pg_dump is installed"),
        Kind("migrations and partition maintenance", _tarry("db", "migrate"), 5),
        Kind("Spark pipeline running", _run_pipeline, 2, slow=True),
    )
}
QUICK = tuple(kind.name for kind in KINDS.values() if not kind.slow)


def schedule(seed: int, n: int, kinds: Sequence[str]) -> list[str]:
    """`n` faults, each kind at least once where there is room, in an order that follows from the seed."""
    chance = random.Random(f"{seed}/schedule")
    first = list(kinds)
    chance.shuffle(first)
    rest = chance.choices(list(kinds), [KINDS[name].weight for name in kinds], k=max(0, n - len(first)))
    chosen = (first + rest)[:n]
    chance.shuffle(chosen)
    return chosen


class Nemesis:
    """Does one fault after the other and writes down when. Everything runs again before the next one."""

    def __init__(self, scene: Scene, seed: int) -> None:
        self._scene = scene
        self._seed = seed
        self.faults: list[Fault] = []

    def strike(self, name: str) -> Fault:
        kind = KINDS[name]
        begun = now_us()
        struck = kind.act(self._scene, random.Random(f"{self._seed}/{len(self.faults)}/{name}"))
        if kind.forgets:
            assert isinstance(struck, int)
            begun = struck  # since then the standby was behind
        detail = "" if struck is None or kind.forgets else str(struck)
        fault = Fault(name, begun, now_us(), kind.crash, kind.forgets, detail)
        self.faults.append(fault)
        with (self._scene.crowd.folder / "faults.log").open("ab") as log:
            log.write(msgspec.json.encode(fault) + b"\n")
        return fault


def available(scene: Scene, kinds: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Of these kinds, those that can be done here, and why the others cannot."""
    why = {name: reason for name in kinds if (reason := KINDS[name].missing(scene)) is not None}
    return [name for name in kinds if name not in why], why
