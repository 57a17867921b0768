"""The same command line under `spark-submit`: the entry point is one and the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

import tarry

ROOT = Path(__file__).parents[3]


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_spark_submit_runs_the_jobs_of_the_command_line(database: str, tmp_path: Path) -> None:
    with tarry.connect(database) as app:
        orders = app.queue("orders")
        orders.offer_many([tarry.Message(payload={"total": n}, key=f"order-{n}") for n in range(50)])
        for delivery in orders.poll_many(50):
            delivery.ack()
    ran = subprocess.run(
        [
            str(Path(pyspark.__path__[0], "bin", "spark-submit")),
            *("--master", "local[1]", "--conf", "spark.driver.memory=1g", "--conf", "spark.ui.enabled=false"),
            *(str(ROOT / "examples" / "submit.py"), "pipeline", "run", "--lake", str(tmp_path / "lake")),
        ],
        env={**os.environ, "TARRY_DSN": database, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[-3000:]
    assert "archive: 151 events" in ran.stdout + ran.stderr
    with tarry.connect(database) as app:
        assert app.pipeline.manifest.batches(str(tmp_path / "lake"))
