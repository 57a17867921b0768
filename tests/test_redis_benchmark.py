"""The comparison on Redis: Tarry on both stores takes part, and the report has the figures and what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import redis

from benchmarks.peers.contenders import Contender
from benchmarks.peers.scenarios import SCENARIOS, Plan
from benchmarks.redis.bench import ON_POSTGRESQL, OURS, RedisBench, contenders, markdown
from benchmarks.redis.server import RedisMeter, redis_server
from benchmarks.server import running_server
from tests.kit.redis_servers import until

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


def test_no_rewrite_of_the_append_only_file_is_part_of_a_slice() -> None:
    with redis_server() as server, redis.Redis(port=server.port) as client:

        def info(name: str) -> int:
            values: Any = client.info()
            return values[name]

        client.mset({str(n): n for n in range(200)})
        client.config_set("auto-aof-rewrite-min-size", "1")
        client.config_set("rdb-key-save-delay", 1_000)  # a rewrite takes 0.2 s
        client.bgrewriteaof()
        assert info("aof_rewrite_in_progress")
        with RedisMeter(server).slice():
            assert not info("aof_rewrite_in_progress")
            forks, seconds = info("total_forks"), info("uptime_in_seconds")
            client.mset({str(n): "x" * 100 for n in range(2_000)})
            until(lambda: info("uptime_in_seconds") > seconds + 1)  # it decides ten times a second
            assert info("total_forks") == forks
        until(lambda: info("total_forks") > forks)
