"""The comparison on Redis: Tarry on both stores takes part, and the report has the figures and what is missing."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.contenders import Contender
from benchmarks.peers.scenarios import SCENARIOS, Plan
from benchmarks.redis.bench import ON_POSTGRESQL, OURS, RedisBench, contenders, markdown
from benchmarks.redis.server import redis_server
from benchmarks.server import running_server

SMALL = Plan(rounds=1, seconds=0.1, minutes=None, in_flight=200)
ABSENT = Contender(name="absent", command=(), missing="it is not installed")


def test_tarry_takes_part_on_both_stores(tmp_path: Path) -> None:
    ours = [contender for contender in contenders() if contender.name in (OURS, ON_POSTGRESQL)]
    with running_server(None) as server, redis_server() as redis:
        bench = RedisBench(SMALL, server, [*ours, ABSENT], tmp_path / "agents.log", lambda text: None, redis=redis)
        for scenario in ("produce", "in-flight"):
            SCENARIOS[scenario](bench)
    assert all({OURS, ON_POSTGRESQL} <= set(by_name) for by_name in bench.results.figures.values())
    facts = dict.fromkeys(("date", "commit", "redis", "postgresql", "python", "cores", "rounds"), "1")
    text = markdown({**facts, "load_before": 0.0, "load_after": 0.0}, bench.results)
    assert f"| {OURS} |" in text
    assert "| absent | it is not installed" in text
    assert "## Slow-down" in text
    goals = text.partition("## Goals")[2]
    assert "produce one: messages/s beside a peer, the nearest | ≥ 1 × | – | NOT MEASURED" in goals
    assert "batches of 100, 200 in flight: slow-down | ≤ 1.5 × |" in goals
