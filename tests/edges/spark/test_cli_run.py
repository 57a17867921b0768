"""The commands of the pipeline with real jobs, and the notebook: from traffic to an explained anomaly."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

import tarry
from tarry.edges.cli.main import main

ROOT = Path(__file__).parents[3]

# Eight jobs, one after the other, each of several queries; on a busy machine that takes its time.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def traffic(database: str) -> str:
    """Two hundred orders, most of them acked, one dead."""
    with tarry.connect(database, consumer="worker") as app:
        orders = app.queue("orders")
        orders.offer_many([tarry.Message(payload={"total": n}, key=f"order-{n}") for n in range(200)])
        orders.offer("order-x", {"total": 7}, priority=9, retry=tarry.Retry.at_once(max_attempts=2))
        for delivery in orders.poll_many(150):
            delivery.nack("the card has expired") if delivery.key == "order-x" else delivery.ack()
        again = orders.poll()
        assert again is not None
        again.nack("the card has expired")
        assert len(orders.dead_letters.list()) == 1
    return database


@pytest.fixture
def run(
    spark: SparkSession, traffic: str, lake: str, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., tuple[int, str]]]:
    def run(*args: str, lake_options: tuple[str, ...] = ("--lake", lake)) -> tuple[int, str]:
        code = main(["--dsn", traffic, *args, *lake_options])
        output = capsys.readouterr()
        return code, output.out + output.err

    yield run
    assert spark.range(1).count() == 1, "a session that was running is left running"


def test_the_pipeline_runs_explains_an_anomaly_verifies_and_finds_a_lost_row(
    run: Callable[..., tuple[int, str]], spark: SparkSession, traffic: str, lake: str, tmp_path: Path
) -> None:
    code, output = run("pipeline", "run")
    assert code == 0, output
    for job in ("archive", "facts", "metrics", "consumers", "anomalies", "forecast"):
        assert f"{job}: " in output
    page = tmp_path / "report.html"
    code, output = run("pipeline", "report", "--html", str(page), lake_options=())
    assert code == 0
    assert "dlq_movement" in output
    assert "order-x" in output
    assert "worker" in output
    assert "order-x" in page.read_text()
    assert run("pipeline", "status")[0] == 0
    code, output = run("verify")
    assert code == 0, output
    with psycopg.connect(traffic, autocommit=True) as conn:
        conn.execute("delete from tarry.message where key = 'order-180'")
    code, output = run("verify")
    assert code == 7
    assert "order-180" in output


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
