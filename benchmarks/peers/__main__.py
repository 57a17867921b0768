"""`make bench-peers`, or `python -m benchmarks.peers --help`. `--compare A B` compares two runs (`make bench-compare`)."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.peers import report
from benchmarks.peers.contenders import HOME, contenders, install
from benchmarks.peers.scenarios import FULL, QUICK, SCENARIOS, STANDARD, Bench, Clock, Plan
from benchmarks.report import commit
from benchmarks.server import running_server


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    size = parser.add_mutually_exclusive_group()
    for option, plan, what in (
        ("--standard", STANDARD, "all scenarios in about 25 minutes: the default"),
        ("--quick", QUICK, "minutes: to see that it works"),
        ("--full", FULL, "hours: everything at full size"),
    ):
        size.add_argument(option, dest="plan", action="store_const", const=plan, help=what)
    parser.set_defaults(plan=STANDARD)
    parser.add_argument("--minutes", type=float, help="of the run; each scenario has its share, and one round at least")
    sizes = {"held": "seconds of a held snapshot", "in-flight": "leased messages", "dead": "leases of killed consumers"}
    for name, what in sizes.items():
        parser.add_argument(f"--{name}", type=int, metavar="N", help=what)
    for name in ("future", "finished", "consumers", "concurrency"):
        parser.add_argument(f"--{name}", type=int, nargs="+", metavar="N", help="instead of those of the plan")
    parser.add_argument("--only", nargs="+", choices=list(SCENARIOS), default=list(SCENARIOS), metavar="SCENARIO")
    parser.add_argument("--contenders", nargs="+", metavar="NAME", help="of those only, by the beginning of the name")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="of one turn")
    parser.add_argument("--pgmq", type=Path, metavar="FILE", help="pgmq's SQL file, fetched by you")
    parser.add_argument("--pgque", type=Path, metavar="FILE", help="PgQue's SQL file, fetched by you")
    parser.add_argument("--dsn", help="a PostgreSQL of your own, where databases may be created (default: embedded)")
    parser.add_argument("--output", type=Path, default=HOME / "results", help="folder for results.{md,svg,json}")
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("A", "B"), help="two results.json")
    options = parser.parse_args()
    if options.compare:
        print(report.compared(*options.compare))
        return
    install()
    run(options)


def run(options: argparse.Namespace) -> None:
    plan: Plan = options.plan
    options.held_s = options.held
    for name in (
        "rounds",
        "seconds",
        "minutes",
        "held_s",
        "in_flight",
        "dead",
        *(lists := ("future", "finished", "consumers", "concurrency")),
    ):
        if (value := getattr(options, name)) is not None:
            plan = replace(plan, **{name: tuple(value) if name in lists else value})
    chosen = [
        contender
        for contender in contenders(options.pgmq, options.pgque)
        if not options.contenders or contender.name.lower().startswith(tuple(n.lower() for n in options.contenders))
    ]
    options.output.mkdir(parents=True, exist_ok=True)
    started, before, load = time.monotonic(), _cpu_times(), os.getloadavg()[0]
    with running_server(options.dsn) as server:
        server.check_durable()
        clock = Clock(plan.minutes, options.only)
        bench = Bench(plan, server, chosen, options.output / "agents.log", _progress, clock)
        facts: dict[str, Any] = {
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "commit": commit(),
            "postgresql": server.settings()["server_version"],
            "python": platform.python_version(),
            "cores": os.cpu_count(),
            "rounds": plan.rounds,
            "load_before": load,
        }
        for name in options.only:
            clock.begin(name)
            SCENARIOS[name](bench)
            # After every scenario: a run that is interrupted has shown something.
            facts |= {"load_after": os.getloadavg()[0], "steal": _steal(before), "seconds": time.monotonic() - started}
            _write(options.output, facts, bench)
    print((options.output / "results.md").read_text())


def _write(folder: Path, facts: dict[str, Any], bench: Bench) -> None:
    (folder / "results.md").write_text(report.markdown(facts, bench.results))
    (folder / "results.json").write_text(report.to_json(facts, bench.results))
    (folder / "results.svg").write_text(report.svg(bench.results))


def _progress(text: str) -> None:
    print(f"\r\x1b[K{text}" if sys.stderr.isatty() else text, end="" if sys.stderr.isatty() else "\n", file=sys.stderr)


def _cpu_times() -> list[int]:
    """Of all cores: user, nice, system, idle, iowait, irq, softirq, steal."""
    return [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]


def _steal(before: list[int]) -> float:
    spent = [now - then for now, then in zip(_cpu_times(), before, strict=True)]
    return 100 * spent[7] / max(1, sum(spent))


if __name__ == "__main__":
    main()
