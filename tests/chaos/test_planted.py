"""Tests of the tester: bugs that others have shipped, planted into our own statements, are found by the right count."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tarry.storage.postgres import statement
from tests.chaos.checker.check import check
from tests.chaos.checker.verdict import BROKEN, Verdict
from tests.chaos.cluster import cluster
from tests.chaos.crowd import Crowd
from tests.chaos.ending import drain, journal, prepare
from tests.chaos.faults import Nemesis, Scene
from tests.chaos.planted import BUGS, planted
from tests.chaos.recording import History, read

WITHIN_S = 60.0
DISK = "offer that does not wait for the disk"


@contextmanager
def crowd_with(bug: str, dsn: str, folder: Path) -> Generator[Crowd]:
    folder.mkdir()
    prepare(dsn)
    crowd = Crowd(dsn, folder, bug=bug, hot=0.6, weights=BUGS[bug].weights)
    try:
        for role in BUGS[bug].roles:
            if role == "scheduler":
                crowd.start_command("scheduler", "scheduler")
            else:
                crowd.start(role)
        crowd.start("library", tasks=8)
        crowd.await_operations(1)
        yield crowd
    finally:
        crowd.abandon()


def test_there_are_at_least_twelve_bugs_and_each_has_a_count() -> None:
    assert len(BUGS) >= 12
    assert {bug.found_as for bug in BUGS.values()} <= BROKEN.keys()


def test_the_statements_still_have_what_a_bug_takes_out() -> None:
    for name, bug in BUGS.items():
        single = {f"{verb}:one" for verb in ("messages/offer", "messages/ack") if verb in bug.changes}
        for verb in bug.changes.keys() | single:
            assert planted(name, verb) != statement.sql(verb), name  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("bug", [name for name, bug in BUGS.items() if not bug.ends])
def test_a_planted_bug_is_found(database: str, tmp_path: Path, bug: str) -> None:
    with crowd_with(bug, database, tmp_path / "histories") as crowd:
        verdict, deadline = Verdict(), time.monotonic() + WITHIN_S
        while time.monotonic() < deadline:
            crowd.await_operations(100)
            # Not yet over: operations in flight count as unknown, and what is left is not checked.
            verdict = check(History(read(crowd.folder)))
            if BUGS[bug].found_as in verdict.broken:
                return
    pytest.fail(f"not found; broken was {verdict.broken}")


@pytest.mark.parametrize("bug", [name for name, bug in BUGS.items() if bug.ends and name != DISK])
def test_a_planted_bug_is_found_in_the_end(database: str, tmp_path: Path, bug: str) -> None:
    with crowd_with(bug, database, tmp_path / "histories") as crowd:
        crowd.await_operations(1_500)
        crowd.stop("library")
        left = drain(database, crowd.folder)
        crowd.stop("follower")
        verdict = check(History(read(crowd.folder), [], left), journal(database))
    assert BUGS[bug].found_as in verdict.broken


def test_an_offer_that_did_not_wait_for_the_disk_is_found_lost_after_a_crash(tmp_path: Path) -> None:
    """Offers only: an ack would wait for the disk, and take the offers before it along."""
    (tmp_path / "histories").mkdir()
    with cluster() as server:
        prepare(server.dsn)
        crowd = Crowd(server.dsn, tmp_path / "histories", bug=DISK, hot=0, offers_only=True)
        try:
            crowd.start("library")
            nemesis = Nemesis(Scene(server, crowd), seed=1)
            crowd.await_operations(400)
            nemesis.strike("postmaster killed")
            crowd.await_operations(20)
            crowd.stop("library")
            left = drain(server.dsn, crowd.folder)
            assert "lost" in check(History(read(crowd.folder), nemesis.faults, left)).broken
        finally:
            crowd.abandon()
