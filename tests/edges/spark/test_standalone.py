"""The same jobs on `local[2]` and on a standalone cluster of two workers, reached in every way: equal results.

Many JVMs, one after the other, so not in every run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
import pyspark
import pytest

import tarry
from tarry.edges.spark.session import java_home
from tests.kit.ports import free_port
from tests.kit.standalone import Cluster, cluster

SPARK = Path(pyspark.__path__[0], "bin")
pytestmark = pytest.mark.chaos

JOBS = """
import dataclasses, json, os, sys
from datetime import timedelta

os.environ.pop("SPARK_ENV_LOADED", None)  # of Spark's scripts, which no manager of a cluster uses to start a driver
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
    if "SPARK_REMOTE" not in os.environ:
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


def test_every_way_to_a_cluster_finds_what_a_laptop_finds(traffic: str, tmp_path: Path) -> None:
    """Two workers share nothing but the lake's path and the database. A master that was chosen before our session stands,
    whatever it requests.
    """
    script = tmp_path / "jobs.py"
    script.write_text(JOBS)
    here = _results(traffic, tmp_path / "laptop", [sys.executable, str(script)], "local[2]")
    assert here.pop("where") == "local[2]"
    here.pop("executors")
    assert here["digest"][0] > 500
    assert all(here[name] for name in ("metrics", "consumers", "facts", "anomalies", "verified"))
    with cluster(tmp_path) as made:
        for name, (program, requested) in _ways(made, str(script)).items():
            with psycopg.connect(
                traffic, autocommit=True
            ) as conn:  # so that nothing can be left over from the way before
                conn.execute("truncate tarry.metric_minute, tarry.consumer_hour, tarry.anomaly")
            there = _results(traffic, tmp_path / name, program, requested, **_environ(made, name))
            if name == "connect":
                assert len(made.executors()) == 2
            else:
                assert (name, there.pop("where"), there.pop("executors")) == (name, made.url, 2)
            assert (name, there) == (name, here)


def _ways(made: Cluster, script: str) -> dict[str, tuple[Sequence[str], str]]:
    """Programs that run the jobs, and the master that the session requests."""
    return {
        "session": ([sys.executable, script], made.url),
        "client": ([str(SPARK / "spark-submit"), "--master", made.url, script], "local[1]"),
        # As a cluster starts a driver: a JVM that knows the master, and starts Python.
        "cluster": ([str(SPARK / "spark-class"), "org.apache.spark.deploy.PythonRunner", script, ""], "local[1]"),
        "connect": ([sys.executable, script], "local[1]"),
    }


def _environ(made: Cluster, way: str) -> dict[str, str]:
    if way == "connect":
        return {"SPARK_REMOTE": made.connect_server(free_port())}
    if way == "cluster":
        settings = {"spark.master": made.url, "spark.submit.deployMode": "cluster", "spark.app.name": "jobs"}
        return {"JAVA_TOOL_OPTIONS": " ".join(f"-D{name}={value}" for name, value in settings.items())}
    return {}


def _results(dsn: str, lake: Path, program: Sequence[str], requested: str, **more: str) -> Any:
    environ = {"JAVA_HOME": java_home(os.environ), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [*program, dsn, str(lake), requested],
        env={**os.environ, **environ, "PYTHONPATH": os.pathsep.join(sys.path), **more},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.rpartition("FOUND ")[2])
