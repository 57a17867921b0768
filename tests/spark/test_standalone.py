"""The same jobs on `local[2]` and on a standalone master with two workers: equal results. Three JVMs, so not in every run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import tarry

pytest.importorskip("pyspark")
pytestmark = pytest.mark.chaos

JOBS = """
import dataclasses, json, sys
from datetime import timedelta
import tarry
from tarry.edges.spark.jobs import archive, consumers, facts, metrics
from tarry.edges.spark.session import session

dsn, lake, master = sys.argv[1:]
spark = session(master, {"spark.executor.memory": "640m", "spark.sql.shuffle.partitions": "2"})
with tarry.connect(dsn) as app:
    for job, args in ((archive, archive.ArchiveArgs(lake=lake, batch_rows=200)), (facts, facts.FactsArgs(lake=lake)),
                      (metrics, metrics.MetricsArgs(lake=lake)), (consumers, consumers.ConsumersArgs(lake=lake))):
        job.run(spark, app, args)
    now = app.store.now()
    serving, since = app.pipeline.serving, now - timedelta(days=1)
    rows = {
        "metrics": serving.metrics(None, since, now), "consumers": serving.consumers(None, since, now),
        "facts": serving.facts(None, since, now, limit=10_000),
    }
    plain = lambda row: str(dataclasses.replace(row, run_id=0, fresh_at=now.min))
    found = {name: sorted(map(plain, of)) for name, of in rows.items()}
    batches = app.pipeline.manifest.batches(lake)
    found["digest"] = [sum(b.digest.rows for b in batches), sum(b.digest.checksum for b in batches) % 2**64]
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


@contextmanager
def _started(arguments: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    import pyspark

    program = Path(next(iter(pyspark.__path__)), "bin", "spark-class")
    process = subprocess.Popen(
        [str(program), *arguments], env=environment, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(timeout=30)
        if process.stderr is not None:
            process.stderr.close()


def _said(process: subprocess.Popen[str], words: str) -> str:
    """Read what it logs until it says so."""
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return line
    raise AssertionError(f"it ended without saying {words!r}")


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """A standalone master with two workers, all of this machine."""
    from tarry.edges.spark.session import java_home

    # As an INFO log says when a worker has registered, and the default profile may be quieter.
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "log4j2.properties").write_text(
        "rootLogger.level = info\nrootLogger.appenderRef.stderr.ref = stderr\nappender.stderr.type = Console\n"
        "appender.stderr.name = stderr\nappender.stderr.target = SYSTEM_ERR\nappender.stderr.layout.type = PatternLayout\n"
        "appender.stderr.layout.pattern = %c{1}: %m%n\n"
    )
    environment = {
        **os.environ,
        "JAVA_HOME": java_home(os.environ),
        "SPARK_CONF_DIR": str(conf),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "384m",
        "PYSPARK_PYTHON": sys.executable,
    }
    with ExitStack() as stack:
        main = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        head = stack.enter_context(_started(main, environment))
        url = "spark://" + _said(head, "Starting Spark master at").rpartition("spark://")[2].strip()
        for number in range(2):
            room = tmp_path / f"worker-{number}"
            options = ["--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0", "-d", str(room)]
            worker = ["org.apache.spark.deploy.worker.Worker", *options, url]
            one = stack.enter_context(_started(worker, environment))
            _said(one, "Successfully registered with master")
        yield url


def _found(dsn: str, lake: Path, master: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", JOBS, dsn, str(lake), master],
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.rpartition("FOUND ")[2])


def test_a_cluster_finds_what_a_laptop_finds(traffic: str, master: str, tmp_path: Path) -> None:
    here = _found(traffic, tmp_path / "here", "local[2]")
    there = _found(traffic, tmp_path / "there", master)
    assert there.pop("where") == master
    assert there.pop("executors") == 2
    assert here.pop("where") == "local[2]"
    here.pop("executors")
    assert here["digest"][0] > 500
    assert here["metrics"]
    assert there == here
