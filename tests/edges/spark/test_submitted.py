"""Under `spark-submit`: its master stands, and the command line is one and the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

import tarry
from tarry.edges.spark.session import java_home

ROOT = Path(__file__).parents[3]
WHERE = """
import os
assert os.environ.pop("SPARK_ENV_LOADED"), "of Spark's scripts, which no manager of a cluster uses to start a driver"
assert os.environ["PYSPARK_GATEWAY_PORT"]
from tarry.edges.spark.session import session
context = session("local[2]").sparkContext
print("master", context.master)
print("temporary", *{os.path.dirname(path) for path in os.scandir(context._jvm.System.getProperty("java.io.tmpdir"))})
"""


def submit(*arguments: str, **environ: str) -> str:
    """What a program prints that `spark-submit` runs on one core."""
    small = ("spark.driver.memory=1g", "spark.ui.enabled=false", "spark.driver.bindAddress=127.0.0.1")
    ran = subprocess.run(
        [
            *(str(Path(pyspark.__path__[0], "bin", "spark-submit")), "--master", "local[1]"),
            *(text for setting in small for text in ("--conf", setting)),
            *arguments,
        ],
        env={
            **os.environ,
            "JAVA_HOME": java_home(os.environ),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT / "src"),
            **environ,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[-3000:]
    return ran.stdout + ran.stderr


def test_a_session_under_spark_submit_keeps_its_master_and_leaves_no_files(tmp_path: Path) -> None:
    program, temporary = tmp_path / "where.py", tmp_path / "temporary"
    program.write_text(WHERE)
    temporary.mkdir()
    java = f"-Djava.io.tmpdir={temporary} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    printed = submit(str(program), TMPDIR=str(temporary), JAVA_TOOL_OPTIONS=java)
    assert "master local[1]" in printed
    assert f"temporary {temporary}" in printed
    assert list(temporary.iterdir()) == []


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_spark_submit_runs_the_jobs_of_the_command_line(database: str, tmp_path: Path) -> None:
    with tarry.connect(database) as app:
        orders = app.queue("orders")
        orders.offer_many([tarry.Message(payload={"total": n}, key=f"order-{n}") for n in range(50)])
        for delivery in orders.poll_many(50):
            delivery.ack()
    example, lake = str(ROOT / "examples" / "submit.py"), str(tmp_path / "lake")
    assert "archive: 151 events" in submit(example, "pipeline", "run", "--lake", lake, TARRY_DSN=database)
    with tarry.connect(database) as app:
        assert app.pipeline.manifest.batches(lake)
