"""`make bench ARGS="--store redis"`: Tarry on Redis beside BullMQ, arq, RQ and Dramatiq on the same server with the same
`appendfsync always`, and beside Tarry on PostgreSQL. Each through its own public API, in turns, with the CPU of client and
server. The scenarios are those of `make bench-peers`."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.peers import report
from benchmarks.peers.contenders import HOME, Agent, Contender, Packages, install
from benchmarks.peers.scenarios import SCENARIOS, Bench, Clock, Figure, Plan, Results, empty_before
from benchmarks.redis.server import RedisMeter, RedisServer, redis_server
from benchmarks.report import commit
from benchmarks.server import running_server

OURS, ON_POSTGRESQL = "Tarry on Redis", "Tarry on PostgreSQL"
PACKAGES = Packages(
    folder="redis",
    python=("arq==0.28.0", "rq==2.12.0", "dramatiq[redis]==2.2.1"),
    node=("bullmq@6.7.0", "ioredis@5"),
)
STANDARD = Plan(consumers=(1, 8), minutes=25.0, future=(1_000_000,), late=50)
QUICK = Plan(rounds=2, minutes=4, consumers=(1, 2), late=10, future=(5_000,), in_flight=2_000)
CHOSEN = ("produce", "consume", "lateness", "future", "in-flight")


def contenders() -> list[Contender]:
    home = HOME / PACKAGES.folder
    python, node, peers = sys.executable, shutil.which("node"), str(home / "venv" / "bin" / "python")
    agent = ("-m", "benchmarks.peers.adapters.agent")
    mjs = (node or "node", str(home / "node" / "agent.mjs"), "./bullmq.mjs")
    return [
        Contender(name=OURS, command=(python, *agent, "tarry_library", "events")),
        Contender(name=ON_POSTGRESQL, command=(python, *agent, "tarry_library", "events")),
        Contender(name="BullMQ", command=mjs, missing=None if node else "Node.js is not installed"),
        Contender(name="arq", command=(peers, *agent, "arq_queue")),
        Contender(name="RQ", command=(peers, *agent, "rq_queue")),
        Contender(name="Dramatiq", command=(peers, *agent, "dramatiq_queue")),
    ]


@dataclass(slots=True, kw_only=True)
class RedisBench(Bench):
    redis: RedisServer

    def database(self, contender: Contender) -> str:
        if contender.name == ON_POSTGRESQL:
            return Bench.database(self, contender)
        return self.redis.database()

    def meter_of(self, agent: Agent) -> Any:
        return Bench.meter_of(self, agent) if agent.contender.name == ON_POSTGRESQL else RedisMeter(self.redis)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks --store redis", description=__doc__)
    size = parser.add_mutually_exclusive_group()
    size.add_argument(
        "--standard", dest="plan", action="store_const", const=STANDARD, help="about 25 minutes: the default"
    )
    size.add_argument("--quick", dest="plan", action="store_const", const=QUICK, help="minutes: to see that it works")
    parser.set_defaults(plan=STANDARD)
    parser.add_argument("--only", nargs="+", choices=CHOSEN, default=CHOSEN, metavar="SCENARIO")
    parser.add_argument("--contenders", nargs="+", metavar="NAME", help="of those only, by the beginning of the name")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--output", type=Path, default=HOME / PACKAGES.folder / "results", help="folder of the results")
    options = parser.parse_args(arguments)
    install(PACKAGES)
    plan: Plan = options.plan
    plan = replace(plan, **{name: value for name in ("rounds", "minutes") if (value := getattr(options, name))})
    chosen = [
        contender
        for contender in contenders()
        if not options.contenders or contender.name.lower().startswith(tuple(n.lower() for n in options.contenders))
    ]
    options.output.mkdir(parents=True, exist_ok=True)
    started, load = time.monotonic(), os.getloadavg()[0]
    with running_server(None) as server, redis_server() as redis:
        server.check_durable()
        clock = Clock(plan.minutes, options.only)
        log = options.output / "agents.log"
        bench = RedisBench(plan, server, chosen, log, _progress, clock, redis=redis)
        facts: dict[str, Any] = {
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "commit": commit(),
            "redis": redis.version,
            "postgresql": server.settings()["server_version"],
            "python": platform.python_version(),
            "cores": os.cpu_count(),
            "rounds": plan.rounds,
            "load_before": load,
        }
        for name in options.only:
            clock.begin(name)
            SCENARIOS[name](bench)
            facts |= {"load_after": os.getloadavg()[0], "seconds": time.monotonic() - started}
            # After every scenario: a run that is interrupted has shown something.
            (options.output / "results.md").write_text(markdown(facts, bench.results))
            (options.output / "results.json").write_text(report.to_json(facts, bench.results))
    print((options.output / "results.md").read_text())


def _progress(text: str) -> None:
    print(text, file=sys.stderr)


def _cpu(figure: Figure) -> float | None:
    return None if figure.backend_us is None else figure.client_us + figure.backend_us


def markdown(facts: dict[str, Any], results: Results) -> str:
    lines = [
        "# Tarry on Redis beside its peers",
        "",
        f"{facts['date']}, commit {facts['commit']}, Redis {facts['redis']} with `appendfsync always`, PostgreSQL "
        f"{facts['postgresql']}, Python {facts['python']}, {facts['cores']} cores, load {facts['load_before']:.1f} before "
        f"and {facts['load_after']:.1f} after. Medians of at most {facts['rounds']} rounds, in turns. CPU is that of client "
        "and server; the ratio is the contender's CPU per message divided by that of Tarry on Redis within a round.",
    ]
    for measure in dict.fromkeys([*results.figures, *results.missing]):
        lines += [
            "",
            f"## {measure[0].upper()}{measure[1:]}",
            "",
            "| | messages/s | CPU µs | of it client | of it server | CPU ratio | p50 ms | p99 ms | |",
            "|---|---|---|---|---|---|---|---|---|",
        ]
        for name in results.figures.get(measure, {}):
            values = [
                _number(results.median(measure, name, value))
                for value in (
                    lambda f: f.rate or None,
                    _cpu,
                    lambda f: f.client_us,
                    lambda f: f.backend_us,
                )
            ]
            ratio = results.ratio(measure, name, OURS, _cpu)
            delays = [results.median(measure, name, value) for value in (lambda f: f.p50_ms, lambda f: f.p99_ms)]
            note = next((f.note for f in results.figures[measure][name] if f.note), "")
            cells = [
                *values,
                "–" if ratio is None else f"{ratio:.2f} ×",
                *(_number(delay, 2) for delay in delays),
                note,
            ]
            lines.append(f"| {name} | {' | '.join(cells)} |")
        lines += [f"| {name} | {reason} ||||||||" for name, reason in results.missing.get(measure, {}).items()]
    slowed = [(empty_before(m.partition(", ")[2]), m) for m in results.figures if m.startswith("batches of 100, ")]
    pairs = [(before, after) for before, after in slowed if before in results.figures and before != after]
    if pairs:
        lines += [
            "",
            "## Slow-down",
            "",
            "Server CPU per message beside so many messages, divided by that in an empty queue.",
            "",
        ]
        lines += [
            "| | " + " | ".join(after.partition(", ")[2] for _, after in pairs) + " |",
            "|---" * (len(pairs) + 1) + "|",
        ]
        for name in results.figures[pairs[0][1]]:
            cells = [_slow_down(results, before, after, name) for before, after in pairs]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _slow_down(results: Results, before: str, after: str, name: str) -> str:
    low, high = (results.median(measure, name, lambda f: f.backend_us) for measure in (before, after))
    return f"{high / low:.2f} ×" if low and high else "–"


def _number(value: float | None, digits: int = 0) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"
