"""The example on Spark Declarative Pipelines, run by Spark's own program. A server, a client and a JVM per run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest

import tarry
from tarry.edges.spark.session import java_home

EXAMPLE = Path(__file__).parents[2] / "examples" / "declarative"
pytestmark = pytest.mark.chaos


@pytest.fixture
def declared(tmp_path: Path) -> Path:
    """The example, with a storage of this test."""
    directory = Path(shutil.copytree(EXAMPLE, tmp_path / "declarative"))
    spec = directory / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("file:///tmp/tarry-declarative", f"file://{tmp_path}/storage"))
    return spec


def test_the_declarative_pipeline_makes_its_datasets_and_its_stream_reads_each_event_once(
    database: str, declared: Path
) -> None:
    warehouse = declared.parent / "spark-warehouse"
    with tarry.connect(database) as app:
        app.queues.create("doomed", tarry.QueueSettings(max_attempts=1))
        orders = app.queue("orders")
        orders.offer_many([tarry.Message(payload=n) for n in range(20)])
        for delivery in orders.try_poll_many(20):
            delivery.ack()
        for turn in (1, 2):
            app.queue("doomed").offer(f"d-{turn}", 1)
            for delivery in app.queue("doomed").try_poll_many(1):
                delivery.nack("no")
            _run(database, declared)
            letters = pq.read_table(warehouse / "dead_letters")
            assert sorted(letters["key"].to_pylist()) == [f"d-{n}" for n in range(1, turn + 1)]
            endings = Counter[tuple[str, str]]()
            for row in pq.read_table(warehouse / "endings").to_pylist():  # one per hour
                endings[row["queue"], row["kind"]] += row["count"]
            assert endings == {("orders", "acked"): 20, ("doomed", "nacked"): turn, ("doomed", "buried"): turn}


def _run(dsn: str, spec: Path) -> None:
    environ = {"TARRY_DSN": dsn, "JAVA_HOME": java_home(os.environ), "PYSPARK_PYTHON": sys.executable}
    ran = subprocess.run(
        [
            *(str(Path(pyspark.__path__[0], "bin", "spark-pipelines")), "run", "--spec", str(spec)),
            *("--conf", "spark.sql.catalogImplementation=hive"),
        ],
        cwd=spec.parent,
        env={**os.environ, **environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[-4000:]
