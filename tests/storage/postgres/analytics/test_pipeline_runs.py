"""Runs of jobs: exclusive, refused when another runs, and recorded with their results. Needs no Spark."""

from __future__ import annotations

import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tarry.core.errors import InvalidState, StoreUnavailable
from tarry.core.journal.snapshots import BEGINNING, SnapshotBound, Window
from tarry.storage.postgres.analytics import Pipeline
from tarry.storage.postgres.analytics.archive.manifest import PostgresManifest, job_lock
from tarry.storage.postgres.analytics.database import Database

WAIT_S = 60
HOLDING = """
import sys
from tarry.storage.postgres.analytics import Pipeline
with Pipeline(sys.argv[1]).manifest.run("archive", exclusive="lake /a"):
    print("running", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def manifest(database: str) -> PostgresManifest:
    return Pipeline(database).manifest


@contextmanager
def watching(database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database, autocommit=True) as conn:
        yield conn


def states(database: str) -> list[tuple[str, str, str | None]]:
    with watching(database) as conn:
        return conn.execute("select job, state, error from tarry.pipeline_run order by id").fetchall()


def end_connections_with_locks(database: str) -> None:
    with watching(database) as conn:
        ended = conn.execute(
            "select pg_terminate_backend(pid, %s) from pg_locks where locktype = 'advisory' "
            "and database = (select oid from pg_database where datname = current_database())",
            (WAIT_S * 1000,),
        ).fetchall()
    assert ended == [(True,)]


@pytest.mark.parametrize("limit", ["idle_in_transaction_session_timeout", "transaction_timeout"])
def test_a_lock_outlives_the_time_outs_of_the_server(database: str, limit: str) -> None:
    with watching(database) as conn:
        if conn.execute("select from pg_settings where name = %s", (limit,)).fetchone() is None:
            pytest.skip(f"this server has no {limit}")
        statement = sql.SQL("alter database {} set {} = '1s'")
        conn.execute(statement.format(sql.Identifier(conn.info.dbname), sql.Identifier(limit)))
    reach = Database(database)
    with job_lock(reach, "archive") as verify_held:
        # A transaction that is younger than that of the lock, and idle: once it was ended, so was the other.
        with psycopg.connect(database) as younger:
            younger.execute("select 1")
            assert select.select([younger.pgconn.socket], [], [], WAIT_S)[0], "the server ends nothing"
            with pytest.raises(psycopg.Error, match="timeout"):
                younger.execute("select 1")
        verify_held()
        with pytest.raises(InvalidState, match="under way"), job_lock(reach, "archive"):
            pass
    with job_lock(reach, "archive"):
        pass


def test_a_lost_lock_is_reported_and_the_run_does_not_count_as_done(database: str, manifest: PostgresManifest) -> None:
    with (
        pytest.raises(StoreUnavailable, match="the lock of lake /a was lost") as raised,
        manifest.run("archive", exclusive="lake /a"),
    ):
        end_connections_with_locks(database)
    assert raised.value.hint is not None
    ((job, state, error),) = states(database)
    assert (job, state) == ("archive", "failed")
    assert error is not None
    assert error.startswith("StoreUnavailable: the lock of lake /a was lost")
    with manifest.run("archive", exclusive="lake /a"):
        pass


def test_a_job_lock_keeps_no_snapshot_open(database: str) -> None:
    """An open transaction is needed for the lock; a snapshot, which would hold back vacuum for as long as a job, is not."""
    held = "select query from pg_stat_activity where backend_xmin is not null and datname = current_database()"
    ours = " and backend_type = 'client backend' and pid <> pg_backend_pid()"
    with job_lock(Database(database), "archive") as verify_held, watching(database) as conn:
        assert conn.execute(held + ours).fetchall() == []
        verify_held()
        assert conn.execute(held + ours).fetchall() == []


def test_a_job_can_check_before_each_step_that_it_still_has_its_lock(database: str, manifest: PostgresManifest) -> None:
    steps: list[int] = []

    def job() -> None:
        with manifest.run("archive") as run:
            for step in range(3):
                run.verify_held()
                steps.append(step)
                if step == 1:
                    end_connections_with_locks(database)

    with pytest.raises(StoreUnavailable, match="was lost"):
        job()
    assert steps == [0, 1]


def test_a_job_that_fails_without_its_lock_reports_why_it_failed(database: str, manifest: PostgresManifest) -> None:
    def job() -> None:
        with manifest.run("archive"):
            end_connections_with_locks(database)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        job()
    assert states(database) == [("archive", "failed", "ZeroDivisionError: ")]


def test_two_lakes_at_once_leave_each_other_alone(database: str, manifest: PostgresManifest) -> None:
    with manifest.run("archive", exclusive="lake /a"):
        with manifest.run("archive", exclusive="lake /b"):
            assert [state for _, state, _ in states(database)] == ["running", "running"]
        with pytest.raises(InvalidState, match="lake /a"), manifest.run("archive", exclusive="lake /a"):
            pass
    assert states(database) == [("archive", "done", None)] * 2


def died(database: str, exclusive: str | None) -> None:
    """What a run leaves that was killed: a row that claims to be running, and no lock."""
    with watching(database) as conn:
        conn.execute(
            "insert into tarry.pipeline_run (job, summary) "
            "values ('archive', jsonb_strip_nulls(jsonb_build_object('lock', %s::text)))",
            (exclusive,),
        )


def test_a_run_that_died_under_a_lock_is_lost_for_the_next_owner_of_the_lock(
    database: str, manifest: PostgresManifest
) -> None:
    died(database, "lake /a")
    died(database, None)  # begun by a version that did not write locks down
    died(database, "lake /b")
    with manifest.run("archive", exclusive="lake /a"):
        pass
    assert [state for _, state, _ in states(database)] == ["lost", "lost", "running", "done"]


def test_the_last_run_is_listed_whatever_its_result_and_one_that_died_is_not_running(
    database: str, manifest: PostgresManifest
) -> None:
    with manifest.run("metrics"):
        assert [(run.job, run.state) for run in manifest.last_runs(["archive", "metrics"])] == [("metrics", "running")]
    with pytest.raises(ZeroDivisionError), manifest.run("metrics"):
        raise ZeroDivisionError
    with manifest.run("archive"):
        pass
    died(database, "lake /a")
    runs = manifest.last_runs(["archive", "metrics", "compact"])
    assert [(run.job, run.state, run.failed) for run in runs] == [
        ("archive", "lost", True),
        ("metrics", "failed", True),
    ]
    assert [state for job, state, _ in states(database) if job == "archive"] == ["done", "running"], (
        "reading changes nothing"
    )


def test_each_lake_has_its_own_last_run(manifest: PostgresManifest) -> None:
    with pytest.raises(ZeroDivisionError), manifest.run("archive"):  # without a lake: listed only as the last of all
        raise ZeroDivisionError
    with manifest.run("archive", exclusive="lake /a", lake="/a") as done:
        done.summary = {"rows": 3}
    with pytest.raises(ZeroDivisionError), manifest.run("archive", exclusive="lake /b", lake="/b"):
        raise ZeroDivisionError
    with manifest.run("archive", exclusive="lake /c", lake="/c"):
        runs = manifest.last_runs(["archive"])
    assert [(run.lake, run.state) for run in runs] == [("/a", "done"), ("/b", "failed"), ("/c", "running")]
    last = manifest.last_run("archive", "/a")
    assert last is not None
    assert (last.id, last.summary) == (done.id, {"lake": "/a", "rows": 3})
    assert manifest.last_run("archive", "/b") is None


def test_a_run_whose_process_was_killed_is_listed_as_lost(database: str, manifest: PostgresManifest) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDING, database], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"running\n"
            assert [run.state for run in manifest.last_runs(["archive"])] == ["running"]
        finally:
            process.kill()
    with watching(database) as conn:  # waits until the server has noticed
        conn.execute("select set_config('lock_timeout', %s, false)", (f"{WAIT_S}s",))
        conn.execute("select pg_advisory_lock(hashtextextended('tarry.pipeline lake /a', 0))")
        conn.execute("select pg_advisory_unlock_all()")
    assert [run.state for run in manifest.last_runs(["archive"])] == ["lost"]


def test_batches_since_an_instant_are_neighbours_whatever_their_events_are_from(manifest: PostgresManifest) -> None:
    now = datetime.now(UTC)
    late, edge = now - timedelta(days=3), BEGINNING
    with manifest.run("archive", lake="/a") as noted:
        for n, at in enumerate((late, now, late, now), start=1):
            window = Window(edge, edge := SnapshotBound(f"{n}:{n}:"))
            manifest.complete(manifest.plan("/a", window, "1", noted.id), (), min_at=at, max_at=at)
    first, *others = manifest.batches("/a")
    assert first.max_at == late
    assert manifest.batches("/a", since=now - timedelta(days=2)) == others
    assert manifest.batches("/a", since=now + timedelta(days=2)) == []
