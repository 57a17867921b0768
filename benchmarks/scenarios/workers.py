"""A worker with a trivial handler beside a plain loop on the public API, and the messages of consumers that died."""

from __future__ import annotations

import asyncio

from benchmarks import reclaim, worker
from benchmarks.bench import Bench, Turn
from benchmarks.scenarios.measures import WORKERS
from tarry.app import prepare

ROUNDS = 5
"""At most: every turn is a process of its own, which has to start."""


def run(bench: Bench) -> None:
    dsn = bench.server.database("workers")
    prepare(dsn, migrate=True, allow_unsafe=not bench.plan.durable)

    def turn_of(contender: str) -> Turn:
        def turn() -> None:
            for measure, concurrency in WORKERS.items():
                if bench.plan.judges:
                    sample = worker.in_process(dsn, contender, concurrency, bench.plan.jobs, uvloop=False)
                else:
                    sample = asyncio.run(worker.turn(dsn, contender, concurrency, bench.plan.jobs))
                bench.results.add(measure, contender, sample)

        return turn

    turns = [(name, list(WORKERS), turn_of(name)) for name in (worker.PLAIN, worker.ASYNC)]
    bench.rounds("workers", turns, min(ROUNDS, bench.plan.rounds))


def run_reclaim(bench: Bench) -> None:
    with bench.progress.stage(f"reclaim of {bench.plan.reclaim:,} expired leases", 1):
        figures = reclaim.run(bench.server, bench.plan.reclaim)
    bench.results.facts["reclaim"] = {figure.what: figure.rate for figure in figures}
    bench.results.facts["reclaimed"] = bench.plan.reclaim
