"""Drivers, executors and stragglers, for real: programs of their own, killed with -9 in the middle of a write."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from tarry.app import App
from tarry.core.analytics.bulk_offer import SinkWrite
from tests.edges.spark.sink.sink_kit import counts, number, run_sql, sink_of, staged_rows
from tests.kit.sleepers import until
from tests.kit.standalone import cluster

pytestmark = pytest.mark.chaos

ROWS = 20_000
STORED = "select count(*) from tarry.message"
ROOT = Path(__file__).parents[4]
ATTEMPTS = "select last_value from tarry.sink_attempt_id_seq"


@contextmanager
def running(dsn: str, fault: str, master: str, commit: str) -> Iterator[subprocess.Popen[bytes]]:
    """One driver, gone afterwards."""
    command = [sys.executable, "-m", "tests.edges.spark.crashing", master, dsn, fault, str(ROWS), commit]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, cwd=ROOT, env=environ, start_new_session=True) as driver:
        try:
            yield driver
        finally:
            with suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)


def program(dsn: str, fault: str, *, master: str = "local[2,4]", commit: str = "write") -> int:
    """One driver from its start to its end, whatever that is."""
    with running(dsn, fault, master, commit) as driver:
        return driver.wait(600)


def outcome(dsn: str) -> SinkWrite:
    write = sink_of(dsn).outcome("w")
    assert write is not None
    return write


def assert_all_there_once(dsn: str) -> None:
    assert counts(outcome(dsn)) == (ROWS, 0, 0, 0)
    assert {key for (key,) in run_sql(dsn, "select key from tarry.message")} == {f"k{n}" for n in range(ROWS)}
    assert number(dsn, "select count(*) from tarry.event where kind in ('offered', 'updated')") == ROWS
    assert staged_rows(dsn) == (0, 0)


def test_a_driver_killed_before_the_commit_has_done_nothing_and_the_next_one_does_it_all(database: str) -> None:
    assert program(database, "kill before commit") == -9
    assert number(database, STORED) == 0
    assert staged_rows(database)[0] == ROWS
    assert program(database, "none") == 0
    assert_all_there_once(database)


def test_a_driver_killed_after_the_commit_has_done_it_all_and_the_next_one_does_nothing(database: str) -> None:
    assert program(database, "kill after commit") == -9
    done = outcome(database)
    assert done.committed
    versions = run_sql(database, "select sum(version) from tarry.message")
    assert program(database, "none") == 0
    assert outcome(database) == done
    assert run_sql(database, "select sum(version) from tarry.message") == versions
    assert_all_there_once(database)


def test_a_driver_killed_between_two_tasks_has_stored_some_and_the_next_one_stores_the_others(
    database: str, pipeline_app: App
) -> None:
    """A row that is locked stops one task; the others are stored and consumed before the kill."""
    task = ROWS // 6
    pipeline_app.queues.create("q")
    with psycopg.connect(database) as locking:
        pipeline_app.queue("q").offer("k0", 0, conn=locking)
        with running(database, "none", "local[2,4]", "task") as driver:
            until(lambda: number(database, STORED) >= ROWS - task - 2, "nothing is stored", timeout_s=300)
            os.killpg(driver.pid, signal.SIGKILL)
            assert driver.wait(60) == -signal.SIGKILL
        locking.rollback()
    assert {key for (key,) in run_sql(database, "delete from tarry.message returning key")}.isdisjoint({"k0", "k1"})
    assert program(database, "none", commit="task") == 0
    assert counts(outcome(database)) == (ROWS, 0, 0, 0)
    assert number(database, "select count(*) from tarry.event where kind in ('offered', 'updated')") == ROWS
    assert number(database, STORED) <= task + 2
    assert staged_rows(database) == (0, 0)


@pytest.mark.parametrize("commit", ["write", "task"])
@pytest.mark.parametrize("fault", ["straggle", "kill executor", "crash"])
def test_on_a_cluster_stragglers_and_losses_double_and_lose_nothing(
    database: str, fault: str, commit: str, tmp_path: Path
) -> None:
    with cluster(tmp_path) as made:
        assert program(database, fault, master=made.url, commit=commit) == 0
    assert number(database, ATTEMPTS) > 6, "no task was tried again"
    # The try that came too late may have staged something after the commit.
    sink_of(database).sweep()
    assert_all_there_once(database)
