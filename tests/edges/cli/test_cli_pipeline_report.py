"""tarry pipeline status and report, and tarry anomaly: what the pipeline has left, shown without Spark."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from tarry.app import App
from tarry.edges.cli.exit_codes import ExitCode
from tests.edges.conftest import Run


def test_status_of_a_pipeline_that_never_ran(cli: Run) -> None:
    ran = cli("pipeline", "status")
    assert ran.code == 0
    assert "has not run yet" in ran.err


def test_status_shows_the_last_runs(cli: Run, app: App) -> None:
    with app.pipeline.manifest.run("archive") as run:
        run.summary = {"rows": 12}
    with pytest.raises(ValueError, match="disk"), app.pipeline.manifest.run("metrics"):
        raise ValueError("disk full")
    ran = cli("pipeline", "status", "--json", "--lake", "/nowhere")
    jobs = {job["job"]: job for job in ran.data["jobs"]}
    assert jobs["archive"]["state"] == "done"
    assert (jobs["metrics"]["state"], jobs["metrics"]["error"]) == ("failed", "ValueError: disk full")
    assert (ran.code, ran.data["ok"]) == (ExitCode.CHECK_FAILED, False)
    assert ran.data["archive"] == {"batches": 0, "events": 0, "latest_event_at": None}
    assert ran.data["lake"] == "/nowhere"
    shown = cli("pipeline", "status", "--lake", "/nowhere")
    assert shown.code == ExitCode.CHECK_FAILED
    assert [line.split()[:2] for line in shown.out.splitlines()[1:]] == [["archive", "done"], ["metrics", "failed"]]
    assert "disk full" in shown.out


def test_a_lake_that_fails_is_not_hidden_by_one_that_does_not(cli: Run, app: App) -> None:
    with pytest.raises(ValueError, match="disk"), app.pipeline.manifest.run("archive", lake="/b"):
        raise ValueError("disk full")
    with app.pipeline.manifest.run("archive", lake="/a"):
        pass
    shown = cli("pipeline", "status")
    assert shown.code == ExitCode.CHECK_FAILED
    assert [(line.split()[1], line.split()[-1]) for line in shown.out.splitlines()[1:]] == [
        ("done", "/a"),
        ("failed", "/b"),
    ]


def test_a_job_that_works_again_is_well_again(cli: Run, app: App) -> None:
    manifest = app.pipeline.manifest
    with manifest.run("metrics") as first:
        pass
    with pytest.raises(ValueError, match="disk"), manifest.run("metrics"):
        raise ValueError("disk full")
    done = manifest.last_run("metrics")
    assert done is not None
    assert done.id == first.id, "a job goes on from where one was done"
    assert cli("pipeline", "status").code == ExitCode.CHECK_FAILED
    with manifest.run("metrics"):
        assert cli("pipeline", "status").code == 0
    assert cli("pipeline", "status").code == 0


def test_a_report_without_data_names_the_command_to_run(cli: Run, tmp_path: Path) -> None:
    ran = cli("pipeline", "report", "--html", str(tmp_path / "report.html"))
    assert ran.code == 0
    assert "tarry pipeline run" in ran.out
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    assert list(tmp_path.iterdir()) == [tmp_path / "report.html"]


def test_a_report_has_every_minute_however_many_there_are(cli: Run, app: App, database: str) -> None:
    app.queues.create("orders")
    minutes = 100_001  # one more than the limit of one query
    with psycopg.connect(database) as conn:
        conn.execute(
            "insert into tarry.metric_minute (queue_id, queue, minute, offered, leased, acked, depth, updated, redriven, "
            "nacked, released, expired, buried, dropped, discarded, refused, bytes_offered, dead, exact, run_id, fresh_at) "
            "select 1, 'orders', date_trunc('minute', now()) - n * interval '1 minute', 1, 2, 3, n, "
            "0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, true, 1, now() from generate_series(1, %s) n",
            (minutes,),
        )
    (queue,) = cli("pipeline", "report", "--json", "--last", "70d").data["queues"]
    for name, each in (("offered", 1), ("leased", 2), ("acked", 3)):
        assert sum(bucket[name] for bucket in queue["buckets"]) == each * minutes
    assert queue["buckets"][-1]["depth"] == 1


def test_a_report_as_json_is_data(cli: Run) -> None:
    ran = cli("pipeline", "report", "--json")
    assert ran.data["schema"] == "tarry.pipeline.report/1"
    assert ran.data["queues"] == []


def test_a_report_with_a_bad_path_range_or_queue_is_rejected(cli: Run, tmp_path: Path) -> None:
    assert cli("pipeline", "report", "--html", str(tmp_path / "no" / "report.html")).code == ExitCode.FAILED
    assert cli("pipeline", "report", "--last", "0s").code == ExitCode.USAGE
    assert cli("pipeline", "report", "--queue", "typo").code == ExitCode.NOT_FOUND


def test_anomalies_of_nothing(cli: Run, app: App) -> None:
    ran = cli("anomaly", "list")
    assert (ran.code, ran.out) == (0, "")
    assert "has not looked for anomalies yet" in ran.err
    with app.pipeline.manifest.run("anomalies"):
        pass
    assert "no anomaly was found" in cli("anomaly", "list").err
    assert cli("anomaly", "ack", "17").code == ExitCode.NOT_FOUND
    assert cli("anomaly", "list", "--severity", "awful").code == ExitCode.USAGE


def test_what_is_muted_is_listed_and_can_be_unmuted(cli: Run, app: App) -> None:
    app.queues.create("orders")
    assert cli("anomaly", "mute", "--reason", "why not").code == ExitCode.USAGE
    made = cli("anomaly", "mute", "--queue", "orders", "--for", "2h", "--reason", "load test", "--json")
    assert made.code == 0
    (listed,) = cli("anomaly", "mutes", "--json").data["mutes"]
    assert (listed["queue"], listed["reason"]) == ("orders", "load test")
    assert cli("anomaly", "unmute", str(listed["id"])).code == 0
    assert cli("anomaly", "unmute", str(listed["id"])).code == ExitCode.NOT_FOUND
    assert "nothing is muted" in cli("anomaly", "mutes").err
