"""Tarry beside an earlier commit of itself, in turns on one server: batches (P5, P6) and single offers to the broker (P8)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import psutil

from benchmarks.bare import Bare
from benchmarks.before import ROOT, environment, tree_of
from benchmarks.bench import Bench, Turn
from benchmarks.broker import broker
from benchmarks.contenders import BEFORE, TARRY
from benchmarks.contenders.protocol import Unavailable
from benchmarks.cpu import CONSUME_BATCH, OFFER_BATCH, Tree
from benchmarks.measure import process_cpu_s
from benchmarks.results import Sample
from benchmarks.scenarios.measures import BROKER, CONSUME_MANY_BEFORE, OFFER_MANY_BEFORE
from benchmarks.throughput import rate

BATCHES = {OFFER_MANY_BEFORE: OFFER_BATCH, CONSUME_MANY_BEFORE: CONSUME_BATCH}
_CREATE = """
import sys, tarry
with tarry.connect(sys.argv[1], migrate=True, allow_unsafe=True) as app:
    app.queues.create("bench", exist_ok=True)
"""


def run(bench: Bench) -> None:
    def turn_of(name: str, tree: Tree) -> Turn:
        def turn() -> None:
            for measure, scenario in BATCHES.items():
                bench.results.add(measure, name, tree.run(scenario, bench.plan.batches))

        return turn

    with ExitStack() as stack:
        turns: list[tuple[str, Sequence[str], Turn]] = []
        for name, source in _trees(bench, list(BATCHES)).items():
            tree = Tree(source, bench.server.database(f"batches_{len(turns)}"))
            stack.callback(tree.close)
            for scenario in BATCHES.values():  # plans are made, and caches warm
                tree.run(scenario, min(12, bench.plan.warm_up))
            turns.append((name, list(BATCHES), turn_of(name, tree)))
        bench.rounds(f"batches, beside {bench.before}", turns)


def run_broker(bench: Bench) -> None:
    """CPU is that of the broker's process. The client writes bytes on open sockets, without an idempotency key."""

    def turn_of(name: str, url: str, process: psutil.Process) -> Turn:
        def turn() -> None:
            for measure, tasks in BROKER.items():
                bench.results.add(measure, name, asyncio.run(_offered(url, process.pid, tasks, bench.plan.broker_s)))

        return turn

    with ExitStack() as stack:
        turns: list[tuple[str, Sequence[str], Turn]] = []
        for name, source in _trees(bench, list(BROKER)).items():
            dsn, env = bench.server.database(f"broker_{len(turns)}"), environment(source)
            subprocess.run([sys.executable, "-c", _CREATE, dsn], env=env, check=True)
            url, process = stack.enter_context(broker(dsn, env))
            turns.append((name, list(BROKER), turn_of(name, url, process)))
        bench.rounds(f"offers to a broker, beside {bench.before}", turns)


async def _offered(url: str, pid: int, tasks: int, seconds: float) -> Sample:
    bare = Bare(url, 1, keyed=False)
    await asyncio.gather(*(bare.offer(number) for number in range(tasks)))
    cpu_s, started = process_cpu_s(pid), time.perf_counter()
    _, n = await rate(tasks, seconds, bare.offer)
    wall_s, cpu_s = time.perf_counter() - started, process_cpu_s(pid) - cpu_s
    bare.close()
    # `rate` does each once before it counts.
    return Sample(n=n + tasks, wall_s=wall_s, client_s=cpu_s, backend_s=None, background_s=None, wal_bytes=0, commits=0)


def _trees(bench: Bench, measures: Sequence[str]) -> dict[str, Path]:
    trees = {TARRY: ROOT}
    try:
        if bench.plan.judges:
            trees[BEFORE] = tree_of(bench.before)
    except Unavailable as reason:
        bench.skip(measures, BEFORE, reason)
    return trees
