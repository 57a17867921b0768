"""The commands of the pipeline with real jobs, and the notebook: from traffic to an explained anomaly."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from tarry.edges.cli.main import main
from tests.docs.pages import TUTORIAL
from tests.edges.spark.page_reader import read

ROOT = Path(__file__).parents[3]

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
