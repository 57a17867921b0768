"""Jobs of the pipeline that are started from the dashboard: as processes, one at a time, where Spark and the lake are."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from tarry.core.errors import InvalidState
from tarry.edges.dashboard.pipeline_runs import RERUN, PipelineRuns
from tarry.edges.dashboard.screens.pipeline import result_of

NOWHERE = "postgresql://user:secret@127.0.0.1:1/none"


def test_a_job_is_a_process_of_its_own_one_at_a_time_and_its_failure_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a database it ends before it starts Spark."""

    async def run() -> None:
        runs, lake = PipelineRuns(NOWHERE), str(tmp_path)
        await runs.start("forecast", lake)
        assert (runs.job, runs.why_not("archive", lake)) == ("forecast", "forecast is running")
        with pytest.raises(InvalidState, match="archive was not started: forecast is running"):
            await runs.start("archive", lake)
        async with asyncio.timeout(60):
            await asyncio.gather(*(task for task in asyncio.all_tasks() if task.get_name() == "tarry-pipeline-run"))
        assert (runs.job, runs.why_not("archive", lake)) == (None, None)

    with caplog.at_level(logging.WARNING, "tarry.http"):
        asyncio.run(run())
    (record,) = caplog.records
    assert "forecast of the pipeline ended with 5" in record.getMessage()
    assert "secret" not in record.getMessage()


def test_what_cannot_run_here_is_named(tmp_path: Path) -> None:
    runs, lake = PipelineRuns(NOWHERE), str(tmp_path)
    assert "anomalies" not in RERUN
    for job, where, reason in (
        ("anomalies", lake, "where its options are known"),
        ("prune", lake, "where its options are known"),
        ("archive", None, "has not run yet"),
        ("archive", str(tmp_path / "elsewhere"), "is not on this server"),
    ):
        assert reason in (runs.why_not(job, where) or ""), job
    assert runs.why_not("archive", "s3a://lake/tarry") is None
    assert "has no Spark" in (PipelineRuns(None).why_not("archive", lake) or "")


def test_the_result_of_a_run_leaves_out_what_did_not_happen() -> None:
    summary = {"rows": 5, "raised": 1_030, "muted": 0, "withdrawn": 0, "days": ["2026-11-19"], "problems": 0}
    assert result_of(summary) == "raised 1,030"
