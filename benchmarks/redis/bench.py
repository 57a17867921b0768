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
from benchmarks.targets import Verdict

OURS, ON_POSTGRESQL = "Tarry on Redis", "Tarry on PostgreSQL"
PACKAGES = Packages(
    folder="redis",
    python=("arq==0.28.0", "rq==2.12.0", "dramatiq[redis]==2.2.1"),
    node=("bullmq@6.7.0", "ioredis@5"),
)
STANDARD = Plan(consumers=(1, 8), concurrency=(1, 64), minutes=7.0, future=(1_000_000,), late=50)
QUICK = Plan(rounds=2, minutes=4, consumers=(1, 2), concurrency=(1, 64), late=10, future=(5_000,), in_flight=2_000)
CHOSEN = ("produce", "consume", "stream", "workers", "lateness", "future", "in-flight")


def contenders() -> list[Contender]:
    home = HOME / PACKAGES.folder
    python, node, peers = sys.executable, shutil.which("node"), str(home / "venv" / "bin" / "python")
    agent = ("-m", "benchmarks.peers.adapters.agent")
    mjs = (node or "node", str(home / "node" / "agent.mjs"), "./bullmq.mjs")
    return [
        Contender(name=OURS, command=(python, *agent, "tarry_library", "events"), whole=True),
        Contender(name=ON_POSTGRESQL, command=(python, *agent, "tarry_library", "events"), whole=True),
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
        "--standard", dest="plan", action="store_const", const=STANDARD, help="about 8 minutes: the default"
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
                    _rate,
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
            slowed_down = (_slow_down(results, before, after, name) for before, after in pairs)
            cells = ["–" if ratio is None else f"{ratio:.2f} ×" for ratio in slowed_down]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += ["", "## Goals", "", "| goal | required | measured | |", "|---|---|---|---|"]
    for goal in goals(results):
        reason = goal.unfit or goal.collapsed
        measured = "–" if goal.measured is None else f"{goal.measured:.2f} {goal.unit}"
        status = goal.status.value + (f" ({reason})" if reason else "")
        limit = f"{'≥' if goal.at_least else '≤'} {goal.limit:g} {goal.unit}"
        lines.append(f"| {goal.formula} | {limit} | {measured} | {status} |")
    return "\n".join([*lines, ""])


def goals(results: Results) -> list[Verdict]:
    """Ahead of every peer in messages per second and CPU per message, flat beside other messages, and not late."""
    checks: list[Verdict] = []
    for measure, by_name in results.figures.items():
        if measure.startswith("lateness"):
            p99_ms = results.median(measure, OURS, lambda f: f.p99_ms)
            checks.append(_goal(f"{measure}: p99", p99_ms, 10, unit="ms"))
        elif measure.startswith("batches of 100, ") and (before := empty_before(measure.partition(", ")[2])) != measure:
            if before in results.figures:
                void = results.void(measure, OURS, of="size")
                checks.append(
                    _goal(f"{measure}: slow-down", _slow_down(results, before, measure, OURS), 1.5, void=void)
                )
        elif measure.startswith(("produce", "consume", "worker")):
            # A call that fetches is compared with others, and not with workers, which have no time of a single call.
            peers = [
                name
                for name, figures in by_name.items()
                if name not in (OURS, ON_POSTGRESQL) and (measure.startswith("worker") or figures[0].p50_ms is not None)
            ]
            for what, value in (("messages/s", _rate), ("CPU per message", _cpu)):
                above, below = (OURS, "") if value is _rate else ("", OURS)
                ratios = {
                    name: ratio
                    for name in peers
                    if (ratio := results.ratio(measure, above or name, below or name, value)) is not None
                }
                peer = min(ratios, key=ratios.__getitem__, default=None)
                void = "" if peer is None else results.void(measure, OURS, peer, of="collapsed")
                formula = f"{measure}: {what} beside {peer or 'a peer'}, the nearest"
                checks.append(_goal(formula, ratios[peer] if peer else None, 1, at_least=True, void=void))
    return checks


def _goal(
    formula: str, measured: float | None, limit: float, unit: str = "×", *, at_least: bool = False, void: str = ""
) -> Verdict:
    return Verdict(
        target="", formula=formula, measured=measured, limit=limit, at_least=at_least, unit=unit, collapsed=void
    )


def _rate(figure: Figure) -> float | None:
    return figure.rate or None


def _slow_down(results: Results, before: str, after: str, name: str) -> float | None:
    low, high = (results.median(measure, name, lambda f: f.backend_us) for measure in (before, after))
    return high / low if low and high else None


def _number(value: float | None, digits: int = 0) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"
