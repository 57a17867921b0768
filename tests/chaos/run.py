"""A run: clients of every role, faults by a schedule, and the check of everything that was recorded.

    python -m tests.chaos.run --operations 1000000 --faults 300 --seed 20261116

The faults and what every client does follow from the seed; which of them meet does not. Histories, the fault log and the
figures (`verdict.json`) stay in --folder until the next run; `--check FOLDER` checks them again without running anything.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tests.chaos.checker.check import check
from tests.chaos.checker.verdict import BROKEN, REPORTS, Verdict
from tests.chaos.cluster import cluster
from tests.chaos.crowd import ROOT, WORKING, Crowd, ProxyProcess
from tests.chaos.ending import drain, journal, prepare
from tests.chaos.faults import KINDS, QUICK, Nemesis, Scene, available, schedule
from tests.chaos.recording import Fault, History, Left, read, read_faults
from tests.kit.ports import free_port

FOLDER = ROOT / "build" / "chaos"


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    operations: int
    faults: int
    seed: int
    kinds: tuple[str, ...] = tuple(KINDS)
    binaries: str = "18"
    small: bool = False
    """Fewer clients, for a run that is part of the ordinary suite."""


DEFAULT = Size(operations=1_000_000, faults=320, seed=20261116)


@dataclass(slots=True)
class Result:
    verdict: Verdict
    faults: list[Fault]
    left_out: dict[str, str]
    server: str
    load_s: float
    total_s: float
    cpu_s: float
    """Of the processes of the run, without PostgreSQL."""
    size: Size

    @property
    def kinds(self) -> Counter[str]:
        return Counter(fault.kind for fault in self.faults)

    def text(self) -> str:
        lines = [
            f"PostgreSQL {self.server}, {os.cpu_count()} cores, {platform.platform()}, seed {self.size.seed},"
            f" commit {commit()}: {self.load_s:.0f} s of load, {self.total_s:.0f} s in all.",
            "",
            f"{len(self.faults)} faults of {len(self.kinds)} kinds: "
            + ", ".join(f"{n} × {kind}" for kind, n in self.kinds.most_common()),
            *(f"Left out: {name} ({why})" for name, why in self.left_out.items()),
            "",
            self.verdict.table(),
        ]
        return "\n".join(lines)

    def data(self) -> dict[str, Any]:
        return {
            "seed": self.size.seed,
            "commit": commit(),
            "postgresql": self.server,
            "cores": os.cpu_count(),
            "platform": platform.platform(),
            "load_s": round(self.load_s, 1),
            "total_s": round(self.total_s, 1),
            "cpu_s": round(self.cpu_s, 1),
            "faults": dict(self.kinds.most_common()),
            "left_out": self.left_out,
            "reports": {name: self.verdict.counts[name] for name in REPORTS},
            "broken": {name: self.verdict.counts[name] for name in BROKEN},
        }


@contextmanager
def scene(folder: Path, size: Size) -> Generator[Scene]:
    """A server with everything that runs on it."""
    with ExitStack() as stack:
        server = stack.enter_context(cluster(size.binaries))
        prepare(server.dsn)
        proxied = server.directory / "proxy"
        proxied.mkdir()
        listen = str(proxied / Path(server.socket).name)
        proxy = stack.enter_context(closing(ProxyProcess(listen, server.socket)))
        port, through = free_port(), free_port()
        broker_proxy = stack.enter_context(closing(ProxyProcess(f"127.0.0.1:{through}", f"127.0.0.1:{port}")))
        url = f"http://127.0.0.1:{through}"
        crowd = Crowd(server.dsn, folder, seed=size.seed, proxied=server.proxied_dsn(proxied), url=url)
        stack.callback(crowd.abandon)
        crowd.start_command("broker", "serve", "--port", str(port), "--no-access-log")
        crowd.start_command("scheduler", "scheduler")
        crowd.start("configurer")
        crowd.start("follower")
        crowd.start("follower", url=url)
        crowd.start("library", proxied=True)
        crowd.start("library", tasks=8)
        crowd.start("remote", tasks=4)
        crowd.start("worker", proxied=True)
        if not size.small:
            crowd.start_command("scheduler", "scheduler")
            crowd.start("library")
            crowd.start("library", tasks=8, proxied=True)
            crowd.start("patient", tasks=4, proxied=True)
            crowd.start("remote")
        yield Scene(server, crowd, proxy, broker_proxy)


@contextmanager
def closing(proxy: ProxyProcess) -> Generator[ProxyProcess]:
    try:
        yield proxy
    finally:
        proxy.close()


def run(folder: Path, size: Size, report: Any = print) -> Result:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    begun = time.monotonic()
    with scene(folder, size) as stage:
        crowd, server = stage.crowd, stage.cluster
        version = server.server.version
        kinds, left_out = available(stage, size.kinds)
        for name, why in left_out.items():
            report(f"LEFT OUT: {name}: {why}")
        plan = schedule(size.seed, size.faults, kinds)
        (folder / "plan.json").write_text(json.dumps({"seed": size.seed, "faults": plan}, indent=1))
        nemesis = Nemesis(stage, size.seed)
        pause = size.operations // (len(plan) + 1)
        crowd.await_operations(1)
        for number, name in enumerate(plan, 1):
            crowd.await_operations(max(1, pause * number - crowd.operations()))
            crowd.revive()
            fault = nemesis.strike(name)
            took = f"{(fault.ended - fault.begun) / 1e6:.1f} s {fault.detail}".strip()
            done = f"{crowd.operations():9,} operations"
            report(f"{time.monotonic() - begun:7.1f} s {done}, fault {number}: {name} ({took})")
        while (missing := size.operations - crowd.operations()) > 0:
            crowd.await_operations(min(missing, 10_000), timeout_s=300)
        crowd.revive()
        crowd.await_operations(200)
        load_s = time.monotonic() - begun
        report(f"{load_s:7.1f} s load ends, draining")
        crowd.stop(*WORKING, "worker", "configurer")
        crowd.stop("scheduler", "pipeline")

        def stop_others() -> None:
            crowd.stop("follower")
            crowd.stop("broker")

        left = drain(server.dsn, folder, stop_others)
        report(f"{time.monotonic() - begun:7.1f} s checking")
        (folder / "left.json").write_bytes(msgspec.json.encode(left))
        verdict = check(History(read(folder), nemesis.faults, left), journal(server.dsn))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = used.ru_utime + used.ru_stime
    result = Result(verdict, nemesis.faults, left_out, version, load_s, time.monotonic() - begun, cpu_s, size)
    (folder / "verdict.json").write_text(json.dumps(result.data(), indent=1))
    return result


def commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def _end(*_: object) -> None:
    """SIGTERM ends a run like Ctrl-C: every process that it started is ended, and its disk is unmounted."""
    raise KeyboardInterrupt


def main() -> int:
    signal.signal(signal.SIGTERM, _end)
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos.run", description=__doc__.split("\n")[0] if __doc__ else ""
    )
    parser.add_argument("--operations", type=int, default=DEFAULT.operations)
    parser.add_argument("--faults", type=int, default=DEFAULT.faults)
    parser.add_argument("--seed", type=int, default=DEFAULT.seed)
    parser.add_argument("--kinds", help="comma-separated; 'quick' for those that take no seconds", default="all")
    parser.add_argument("--small", action="store_true", help="fewer clients")
    parser.add_argument("--binaries", default="18", help="PostgreSQL: 18, 16, system, or a bin directory")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--check", type=Path, help="check the recording in this folder again, without the journal")
    given = parser.parse_args()
    if given.check is not None:
        left = given.check / "left.json"
        remains = msgspec.json.decode(left.read_bytes(), type=Left) if left.exists() else None
        verdict = check(History(read(given.check), read_faults(given.check), remains))
        print(verdict.table(), verdict.explained(), sep="\n\n")
        return bool(verdict.broken)
    chosen = {"all": tuple(KINDS), "quick": QUICK}.get(given.kinds) or tuple(
        name.strip() for name in given.kinds.split(",")
    )
    if unknown := [name for name in chosen if name not in KINDS]:
        parser.error(f"no such kind: {', '.join(unknown)}; there are {', '.join(KINDS)}")
    size = Size(
        operations=given.operations, faults=given.faults, seed=given.seed, kinds=chosen, binaries=given.binaries
    )
    result = run(given.folder, size, lambda text: print(text, flush=True))
    print(f"\n{result.text()}\n\n{result.verdict.explained()}")
    return bool(result.verdict.broken)


if __name__ == "__main__":
    sys.exit(main())
