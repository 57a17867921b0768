"""tarry pipeline, verify and anomaly: their output and exit codes. The jobs are played; tests/edges/spark runs real ones."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tarry.core.errors import InvalidState, TarryError
from tarry.edges.cli.commands import pipeline as pipeline_commands
from tarry.edges.cli.exit_codes import ExitCode
from tarry.edges.cli.pipeline import jobs as pipeline_jobs
from tarry.edges.cli.pipeline.jobs import IN_ORDER, ROUTINE, chosen
from tarry.wire.base import data_of
from tests.edges.conftest import Run

NOON = datetime(2030, 1, 31, 12, 0, tzinfo=UTC)


@dataclass(frozen=True)
class PlayedSummary:
    job: str
    days: tuple[datetime, ...] = (NOON,)

    def line(self) -> str:
        return f"{self.job}: done"


@dataclass
class Stage:
    """Jobs that act as the test defines, and record their calls."""

    calls: list[tuple[str, dict[str, Any]]]
    failing: dict[str, BaseException]
    alive: bool = True

    def load(self, name: str) -> Any:
        def run(spark: Any, app: Any, args: dict[str, Any]) -> PlayedSummary:
            self.calls.append((name, args))
            if name in self.failing:
                raise self.failing[name]
            return PlayedSummary(name)

        return SimpleNamespace(run=run, __name__=name)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    made = Stage([], {})

    @contextmanager
    def no_spark(cli: Any, app: Any, master: str | None) -> Iterator[Any]:
        yield SimpleNamespace(master=master)

    monkeypatch.setattr(pipeline_jobs, "load", made.load)
    monkeypatch.setattr(pipeline_jobs, "arguments", lambda module, given: dict(given))
    monkeypatch.setattr(pipeline_jobs, "spark_for", no_spark)
    monkeypatch.setattr(pipeline_jobs, "alive", lambda spark: made.alive)
    return made


def names(stage: Stage) -> list[str]:
    return [name for name, _ in stage.calls]


def test_all_jobs_run_in_order_with_a_line_each(cli: Run, stage: Stage) -> None:
    ran = cli("pipeline", "run", "--lake", "/lake")
    assert ran.code == 0
    assert names(stage) == [*IN_ORDER, "compact"]
    assert [line.partition(" (")[0] for line in ran.out.splitlines()] == [f"{name}: done" for name in ROUTINE]
    assert all(args == {"lake": "/lake"} for _, args in stage.calls[:-1])


def test_a_run_merges_small_batches_when_there_are_many_and_at_once_when_it_is_named(cli: Run, stage: Stage) -> None:
    cli("pipeline", "run")
    cli("pipeline", "run", "compact")
    assert stage.calls[-2:] == [("compact", {"lake": None, "gradual": True}), ("compact", {"lake": None})]


def test_retention_is_off_unless_given(cli: Run, stage: Stage) -> None:
    cli("pipeline", "prune")
    cli("pipeline", "prune", "--retention")
    assert [args["retention"] for _, args in stage.calls] == [False, True]


OWN_DETECTORS = """
from tarry.edges.spark.transforms.anomalies.builtin import BUILT_IN
from tarry.edges.spark.transforms.anomalies.registry import detector

@detector(name="silence", severity="info")
def silence(seen):
    raise NotImplementedError

mine = BUILT_IN.only("large_payload").with_detector(silence)
nothing = 17
"""


def test_detectors_of_ones_own_are_named_by_their_module(
    cli: Run, stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_detectors.py").write_text(OWN_DETECTORS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert cli("pipeline", "run", "--detectors", "own_detectors:mine").code == 0
    assert cli("pipeline", "anomalies", "--detectors", "own_detectors:silence").code == 0
    given = [args["registry"].names for name, args in stage.calls if name == "anomalies"]
    assert given[0] == ("large_payload", "silence")
    assert (given[1][:2], given[1][-1]) == (("flash_message", "large_payload"), "silence")
    for wrong in ("own_detectors:nothing", "own_detectors:absent", "no_module:x", "own_detectors"):
        ran = cli("pipeline", "anomalies", "--detectors", wrong)
        assert (ran.code, "hint: " in ran.err) == (ExitCode.USAGE, True)


def test_the_calendar_of_the_detectors_is_an_option(cli: Run, stage: Stage) -> None:
    days = ("--holiday", "2026-12-25", "--holiday", "2026-12-26")
    assert cli("pipeline", "anomalies", "--zone", "Europe/Berlin", *days).code == 0
    assert cli("pipeline", "run", "anomalies", "--holiday", "2026-12-25").code == 0
    given = [args["registry"].calendar.text() for name, args in stage.calls if name == "anomalies"]
    assert given == ["Europe/Berlin,2026-12-25,2026-12-26", "UTC,2026-12-25"]
    for wrong in (
        ("--zone", "Europe"),
        ("--zone", "Europe/Nowhere"),
        ("--zone", "z" * 30_000),
        ("--holiday", "25.12.2026"),
    ):
        ran = cli("pipeline", "anomalies", *wrong)
        assert (ran.code, "hint: " in ran.err or "such as Europe/Berlin" in ran.err) == (ExitCode.USAGE, True)
        assert len(ran.err) < 300


def test_named_jobs_run_in_the_order_in_which_they_build_on_each_other(cli: Run, stage: Stage) -> None:
    assert cli("pipeline", "run", "metrics", "archive").code == 0
    assert names(stage) == ["archive", "metrics"]


def test_the_journal_is_pruned_only_on_request(cli: Run, stage: Stage) -> None:
    assert "prune" not in chosen((), prune=False)
    assert cli("pipeline", "run", "--prune").code == 0
    assert names(stage)[-1] == "prune"


@pytest.mark.parametrize(
    "name", ["archive", "facts", "metrics", "consumers", "anomalies", "forecast", "compact", "prune"]
)
def test_every_job_is_also_a_command(cli: Run, stage: Stage, name: str) -> None:
    ran = cli("pipeline", name, "-o", "json")
    assert ran.code == 0
    assert ran.data["jobs"][0]["line"] == f"{name}: done"


def test_a_failure_among_others_is_partly_and_the_others_run(cli: Run, stage: Stage) -> None:
    stage.failing["metrics"] = TarryError("the lake is away", hint="look for it")
    ran = cli("pipeline", "run")
    assert ran.code == ExitCode.PARTLY
    assert names(stage) == list(ROUTINE)
    assert "error: metrics: the lake is away" in ran.err
    assert "hint: look for it" in ran.err


def test_when_all_fail_the_run_has_failed(cli: Run, stage: Stage) -> None:
    stage.failing = {name: ValueError("no") for name in ROUTINE}
    ran = cli("pipeline", "run", "--json")
    assert ran.code == ExitCode.FAILED
    assert ran.data["ok"] is False
    assert {job["error"] for job in ran.data["jobs"]} == {"ValueError: no"}


def test_one_job_that_is_refused_ends_as_other_commands_do(cli: Run, stage: Stage) -> None:
    stage.failing["archive"] = InvalidState("another run of it is under way")
    assert cli("pipeline", "archive").code == ExitCode.CONFLICT


def test_json_is_one_document_and_jsonl_a_line_per_job(cli: Run, stage: Stage) -> None:
    ran = cli("pipeline", "run", "archive", "metrics", "--json")
    assert ran.data["schema"] == "tarry.pipeline.run/1"
    assert [job["summary"]["days"] for job in ran.data["jobs"]] == [["2030-01-31T12:00:00.000000Z"]] * 2
    lines = cli("pipeline", "run", "archive", "metrics", "-o", "jsonl").lines
    assert [line["job"] for line in lines] == ["archive", "metrics"]


def test_a_password_in_an_error_is_not_shown(cli: Run, stage: Stage) -> None:
    stage.failing["archive"] = ValueError("cannot reach postgresql://me:s3cret@host/db")
    ran = cli("pipeline", "archive")
    assert "s3cret" not in ran.err + ran.out


def test_a_job_that_does_not_exist_is_a_usage_error_that_names_those_that_do(cli: Run) -> None:
    ran = cli("pipeline", "run", "archiv")
    assert ran.code == ExitCode.USAGE
    assert "archive, facts, metrics" in ran.err


def test_a_job_that_cannot_be_imported_is_one_sentence(cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.delitem(sys.modules, "tarry.edges.spark.jobs.facts", raising=False)
    ran = cli("pipeline", "facts")
    assert ran.code == ExitCode.FAILED
    assert "Traceback" not in ran.err
    assert "hint:" in ran.err


class Stopped(Exception):
    pass


def rounds(monkeypatch: pytest.MonkeyPatch, n: int, end: Callable[[], BaseException]) -> list[timedelta]:
    """Let `--every` go round so often, without waiting."""
    waited: list[timedelta] = []

    def pause(cli: Any, left: timedelta, every: timedelta) -> None:
        waited.append(every)
        if len(waited) == n:
            raise end()

    monkeypatch.setattr(pipeline_jobs, "_pause", pause)
    return waited


def test_every_goes_on_after_a_failure_and_ends_with_ctrl_c(
    cli: Run, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.failing["archive"] = TarryError("the database is away")
    waited = rounds(monkeypatch, 3, KeyboardInterrupt)
    ran = cli("pipeline", "run", "archive", "metrics", "--every", "1m")
    assert ran.code == ExitCode.INTERRUPTED
    assert names(stage) == ["archive", "metrics"] * 3
    assert waited == [timedelta(minutes=1)] * 3
    assert ran.err.count("error: archive: the database is away") == ran.err.count("error: ") == 3


def test_every_ends_when_spark_itself_has_died(cli: Run, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.failing["archive"] = ConnectionRefusedError("gone")
    stage.alive = False
    rounds(monkeypatch, 3, AssertionError)
    ran = cli("pipeline", "run", "archive", "--every", "1m")
    assert ran.code == ExitCode.FAILED
    assert "Spark has ended" in ran.err


def test_every_with_json_is_rejected_with_the_alternative(cli: Run, stage: Stage) -> None:
    ran = cli("pipeline", "run", "--every", "1m", "--json")
    assert ran.code == ExitCode.USAGE
    assert "jsonl" in ran.error["hint"]
    assert cli("pipeline", "run", "--every", "0s").code == ExitCode.USAGE


def test_ctrl_c_in_a_job_ends_the_run(cli: Run, stage: Stage) -> None:
    stage.failing["facts"] = KeyboardInterrupt()
    ran = cli("pipeline", "run")
    assert ran.code == ExitCode.INTERRUPTED
    assert names(stage) == ["archive", "facts"]


def test_replay_passes_its_options_on(cli: Run, stage: Stage) -> None:
    ran = cli(
        *(
            "pipeline",
            "replay",
            "orders",
            "--outcome",
            "buried",
            "--key",
            "a",
            "--key",
            "b",
            "--after",
            "5m",
            "--rate",
            "2",
        ),
        *("--since", "2030-01-31T12:00:00Z", "--prefix", "", "--dry-run"),
    )
    assert ran.code == 0
    (given,) = [args for _, args in stage.calls]
    assert given["outcome"] == "buried"
    assert given["keys"] == ("a", "b")
    assert given["since"] == NOON
    assert (given["after"], given["rate"], given["prefix"]) == (timedelta(minutes=5), 2.0, "")
    assert given["dry_run"] is True


@pytest.mark.parametrize(
    "words", [["--outcome", "lost"], ["--since", "+5m"], ["--since", "soon"], ["--payloads", "xml"]]
)
def test_a_replay_that_cannot_be_understood_is_a_usage_error(cli: Run, stage: Stage, words: list[str]) -> None:
    assert cli("pipeline", "replay", "orders", *words).code == ExitCode.USAGE
    assert stage.calls == []


def test_the_arguments_of_every_job_take_what_the_commands_give() -> None:
    pytest.importorskip("pyspark")
    from tarry.edges.cli.pipeline.jobs import ALL, arguments, load

    for name in (*ALL, "verify"):
        assert arguments(load(name), {"lake": "/lake"}).lake == "/lake"
    replay = arguments(load("replay"), {"queue": "q", "outcome": "buried", "payload_format": "text", "rate": None})
    assert replay.outcome.name == "BURIED"
    assert replay.payload_format.name == "TEXT"


def test_verify_shows_what_differs_and_ends_with_7(cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class Verified:
        ok: bool
        problems: tuple[Any, ...]

        def line(self) -> str:
            return "verify: ok" if self.ok else "verify: FAILED"

    def returning(verified: Verified) -> None:
        module = SimpleNamespace(run=lambda spark, app, args: verified)
        monkeypatch.setattr(pipeline_commands, "load", lambda name: module)

    @contextmanager
    def nothing(*_: Any) -> Iterator[None]:
        yield None

    monkeypatch.setattr(pipeline_commands, "arguments", lambda module, given: given)
    monkeypatch.setattr(pipeline_commands, "spark_for", nothing)
    returning(Verified(True, ()))
    assert cli("verify").code == 0
    returning(Verified(False, (SimpleNamespace(what="1 message is missing", samples=("order-17",)),)))
    ran = cli("verify")
    assert ran.code == ExitCode.CHECK_FAILED
    assert ran.out.splitlines() == ["verify: FAILED", "  1 message is missing", "    order-17"]


def test_numbers_that_json_does_not_have_are_null() -> None:
    assert data_of({"a": float("nan"), "b": timedelta(seconds=2), "c": {1: NOON.date()}}) == {
        "a": None,
        "b": 2.0,
        "c": {"1": "2030-01-31"},
    }
    json.dumps(data_of(PlayedSummary("x")), allow_nan=False)


A_JAVA_THAT_FAILS = """#!/bin/sh
test "$1" = -version && echo 'openjdk version "17"' >&2 && exit
echo "out of everything" >&2
exit 1
"""


@pytest.mark.parametrize("is_installed", [False, True])
def test_spark_that_does_not_start_is_one_sentence_and_only_a_log_that_it_names_stays(
    process: Callable[..., subprocess.Popen[bytes]], tmp_path: Path, is_installed: bool
) -> None:
    pytest.importorskip("pyspark")
    home, temporary = tmp_path / "java", tmp_path / "temporary"
    temporary.mkdir()
    if is_installed:
        (home / "bin").mkdir(parents=True)
        (home / "bin" / "java").write_text(A_JAVA_THAT_FAILS)
        (home / "bin" / "java").chmod(0o755)
    ran = process("pipeline", "archive", env={"JAVA_HOME": str(home), "TMPDIR": str(temporary)})
    out, err = (text.decode() for text in ran.communicate())
    error, hint = err.splitlines()
    left = list(temporary.iterdir())
    assert (ran.returncode, out) == (ExitCode.FAILED, ""), err
    if is_installed:
        (log,) = left
        assert error.startswith("error: Spark did not start: ")
        assert hint.endswith(f"Spark's log: {log}")
        assert "out of everything" in log.read_text()
    else:
        assert (error, left) == (f"error: the data pipeline needs Java 17 or newer: JAVA_HOME is {home}, "
                                 "and there is no bin/java in it", [])  # fmt: skip


def test_sigterm_while_spark_starts_is_one_line_and_leaves_no_log(
    process: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    pytest.importorskip("pyspark")
    java, barrier, temporary = tmp_path / "bin" / "java", tmp_path / "barrier", tmp_path / "temporary"
    os.mkfifo(barrier)
    temporary.mkdir()
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\ncat '{barrier}'\n")
    java.chmod(0o755)
    run = process("pipeline", "archive", env={"JAVA_HOME": str(tmp_path), "TMPDIR": str(temporary)})
    with barrier.open("wb"):  # waits until Java has started
        run.send_signal(signal.SIGTERM)
        assert run.wait() == ExitCode.INTERRUPTED
    assert run.communicate() == (b"", b"stopped by SIGTERM\n")
    assert list(temporary.iterdir()) == []


def test_help_and_report_need_no_spark() -> None:
    code = """
import sys
sys.modules["pyspark"] = None
from tarry.edges.cli.main import main
import tarry.edges.spark.report.html, tarry.edges.spark.report.terminal, tarry.edges.spark.report.gather
assert main(["pipeline", "run", "-h"]) == 0
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
