"""The same jobs on `local[2]` and on a standalone master with two workers: equal results. Three JVMs, so not in every run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import tarry
from tests.kit.standalone import standalone

pytest.importorskip("pyspark")
pytestmark = pytest.mark.chaos

JOBS = """
import dataclasses, json, sys
from datetime import timedelta
import tarry
from tarry.core.analytics.port import AnalyticsQuery
from tarry.edges.spark.jobs import anomalies, archive, consumers, facts, metrics, verify
from tarry.edges.spark.session import session

dsn, lake, master = sys.argv[1:]
spark = session(master, {"spark.executor.memory": "640m", "spark.sql.shuffle.partitions": "2"})
with tarry.connect(dsn) as app:
    for job, args in ((archive, archive.ArchiveArgs(lake=lake, batch_rows=200)), (facts, facts.FactsArgs(lake=lake)),
                      (metrics, metrics.MetricsArgs(lake=lake)), (consumers, consumers.ConsumersArgs(lake=lake))):
        job.run(spark, app, args)
    soon = app.store.run(app.store.queues.now()) + timedelta(minutes=1)
    unusual = anomalies.run(spark, app, anomalies.AnomaliesArgs(lake=lake, until=soon))
    now = app.store.run(app.store.queues.now())
    analytics, day = app.store.analytics, AnalyticsQuery(since=now - timedelta(days=1), until=now, limit=10_000)
    rows = {
        "metrics": app.store.run(analytics.minutes(day)).rows, "consumers": app.store.run(analytics.hours(day)).rows,
    }
    plain = lambda row: str(dataclasses.replace(row, run_id=0, fresh_at=now.min))
    found = {name: sorted(map(plain, of)) for name, of in rows.items()}
    found["facts"] = sorted(map(str, facts.read_facts(spark, lake).collect()))
    batches = app.pipeline.manifest.batches(lake)
    found["digest"] = [sum(b.digest.rows for b in batches), sum(b.digest.checksum for b in batches) % 2**64]
    found["anomalies"] = dict(unusual.by_detector)
    found["verified"] = verify.run(spark, app, verify.VerifyArgs(lake=lake)).ok
    found["where"] = spark.sparkContext.master
    found["executors"] = len(spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()) - 1
print("FOUND " + json.dumps(found))
spark.stop()
"""


@pytest.fixture
def traffic(database: str) -> str:
    with tarry.connect(database, consumer="worker") as app:
        for name in ("orders", "emails"):
            queue = app.queue(name)
            queue.offer_many([tarry.Message(payload={"n": n}, key=f"k-{n}") for n in range(150)])
            for delivery in queue.poll_many(100):
                delivery.nack("no") if delivery.payload["n"] % 9 == 0 else delivery.ack()
    return database


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """A standalone master with two workers, all of this machine."""
    with standalone(tmp_path) as url:
        yield url


def _results(dsn: str, lake: Path, master: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", JOBS, dsn, str(lake), master],
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.rpartition("FOUND ")[2])


def test_a_cluster_finds_what_a_laptop_finds(traffic: str, master: str, tmp_path: Path) -> None:
    here = _results(traffic, tmp_path / "here", "local[2]")
    with psycopg.connect(traffic, autocommit=True) as conn:  # so that nothing can be left over from the laptop
        conn.execute("truncate tarry.metric_minute, tarry.consumer_hour, tarry.anomaly")
    there = _results(traffic, tmp_path / "there", master)
    assert there.pop("where") == master
    assert there.pop("executors") == 2
    assert here.pop("where") == "local[2]"
    here.pop("executors")
    assert here["digest"][0] > 500
    assert all(here[name] for name in ("metrics", "consumers", "facts", "anomalies", "verified"))
    assert there == here
