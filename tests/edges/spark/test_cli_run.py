"""The commands of the pipeline with real jobs, and the notebook: from traffic to an explained anomaly."""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from tarry.edges.cli.exit_codes import ExitCode
from tarry.edges.cli.main import main
from tests.docs.pages import TUTORIAL
from tests.edges.conftest import TARRY
from tests.edges.spark.page_reader import read
from tests.kit.sleepers import until

ROOT = Path(__file__).parents[3]
TIMEOUT_S = 120.0
WAITS = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"

# Eight jobs, one after the other, each of several queries; on a busy machine that takes its time.
pytestmark = pytest.mark.timeout(600)


def test_the_tutorial_is_true_to_the_digit_and_a_lost_row_is_found(
    spark: SparkSession,
    database: str,
    lake: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    printed = read(TUTORIAL, database, tmp_path, capsys, monkeypatch)
    report = next(output for output in printed if "dlq_movement" in output)
    assert "order-x" in report
    assert "order-x" in (tmp_path / "report.html").read_text()
    assert main(["pipeline", "status"]) == 0
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("delete from tarry.message where key = 'order-180'")
    assert main(["verify"]) == 7
    assert "order-180" in capsys.readouterr().out
    assert spark.range(1).count() == 1, "a session that was running is left running"


def test_a_run_that_gets_sigterm_ends_in_one_line_and_leaves_no_files(database: str, lake: str, tmp_path: Path) -> None:
    """Stopped while the job waits for a lock; the JVM's files are where TMPDIR and java.io.tmpdir are."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    env = {
        **os.environ,
        "TARRY_DSN": database,
        "TMPDIR": str(temporary),
        "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={temporary} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    with psycopg.connect(database) as locking, psycopg.connect(database, autocommit=True) as watching:
        locking.execute("lock table tarry.archive_batch")
        run = subprocess.Popen(
            [*TARRY, "pipeline", "archive", "--lake", lake, "--master", "local[1]"],
            env=env, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            until(lambda: run.poll() is not None or watching.execute(WAITS).fetchone() != (0,), timeout_s=TIMEOUT_S)
            assert list(temporary.iterdir()) != [], "the JVM has its files elsewhere"
            run.send_signal(signal.SIGTERM)
            run.wait(TIMEOUT_S)  # its JVM has ended by then, too
            left = list(temporary.iterdir())
            out, err = run.communicate(timeout=TIMEOUT_S)
        finally:
            run.kill()
            run.wait()
    assert (run.returncode, out, err, left) == (ExitCode.INTERRUPTED, "", "stopped by SIGTERM\n", [])


@pytest.mark.chaos
def test_the_notebook_runs_from_the_first_cell_to_the_last(
    spark: SparkSession, database: str, lake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("TARRY_DSN", database)
    monkeypatch.setenv("LAKE", lake)
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(ROOT / "examples" / "pipeline_notebook.py"))
    output = capsys.readouterr().out
    assert "dlq_movement" in output
    assert (tmp_path / "notebook-report.html").exists()
