"""The disk of the lake is full, the lake cannot be written, the server restarts: a job ends with one clear sentence, nothing
half-written is part of the lake, and the next run makes it exact.
"""

from __future__ import annotations

import os
import random
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tarry
from tarry import QueueSettings
from tarry.app import App
from tarry.core.journal.events import JournalLevel
from tarry.edges.cli.main import main
from tarry.edges.spark.jobs import archive
from tarry.edges.spark.jobs.archive import ArchiveArgs
from tests.edges.spark.faults.traffic import check
from tests.kit.directories import new_directory
from tests.storage.postgres.fallible import fallible_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1_200)]
MESSAGES = 600
SEED = 20261118
RESTARTS = 6


class Disk:
    """A disk in memory, which only root may mount."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def remount(self, options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", str(self.directory)], check=True)

    def shrink(self, spare_kb: int) -> None:
        disk = os.statvfs(self.directory)
        used_kb = (disk.f_blocks - disk.f_bfree) * disk.f_frsize // 1024
        self.remount(f"size={max(4, used_kb + spare_kb)}k")  # 0 would be a disk without a limit


@contextmanager
def mounted() -> Iterator[Disk]:
    directory = new_directory("tarry-disk-")
    command = ["mount", "-t", "tmpfs", "-o", "size=64m", "tarry-lake", str(directory)]
    if os.geteuid() != 0 or subprocess.run(command, check=False).returncode != 0:
        directory.rmdir()
        pytest.skip("only root can mount a disk of its own to make it full: NOT TESTED HERE")
    try:
        yield Disk(directory)
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)
        directory.rmdir()


def some_traffic(app: App, turn: int) -> set[str]:
    """Events of random payloads, which no codec makes small."""
    dice = random.Random(turn)
    app.queues.create("q", QueueSettings(journal=JournalLevel.PAYLOADS), exist_ok=True)
    queue = app.queue("q", bytes)
    keys = [f"{turn}-{n}" for n in range(MESSAGES)]
    queue.offer_many([tarry.Message(payload=dice.randbytes(500), key=key) for key in keys])
    for delivery in queue.try_poll_many(MESSAGES // 2):
        delivery.ack()
    return {f"q/{key}" for key in keys}


def one_sentence(captured: pytest.CaptureFixture[str], *any_of: str) -> None:
    """Of each job that failed, with at most one hint, and nothing of Python or Java around it."""
    err = captured.readouterr().err
    print(err)
    lines = err.splitlines()
    assert lines
    assert all(line.startswith(("error: ", "hint: ")) for line in lines), err
    errors = [line for line in lines if line.startswith("error: ")]
    assert all(any(words in line for words in any_of) for line in errors), err
    assert not [line for line in errors if "Py4J" in line or "Traceback" in line or "\tat " in line], err


@pytest.mark.parametrize("fault", ["full", "read-only"])
def test_a_lake_that_cannot_be_written_ends_a_job_with_a_sentence_and_is_exact_afterwards(
    spark: SparkSession,
    pipeline_app: App,
    fault: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TARRY_DSN", str(pipeline_app.dsn))
    accepted: set[str] = set()
    sentence = {"full": "No space left on device", "read-only": "cannot be written: it is read-only"}[fault]
    with mounted() as disk:
        lake = str(disk.directory / "lake")
        for job in ("archive", "facts", "compact"):
            accepted |= some_traffic(pipeline_app, len(accepted))
            if job != "archive":
                archive.run(spark, pipeline_app, ArchiveArgs(lake=lake, batch_rows=150))
            capsys.readouterr()
            for spare_kb in (0, 4, 40) if fault == "full" else (0,):
                disk.shrink(spare_kb) if fault == "full" else disk.remount("ro")
                code = main(["pipeline", job, "--lake", lake])
                assert code != 0 or spare_kb > 0
                if code != 0:
                    one_sentence(capsys, sentence, "Read-only file system")  # the first of a lake
                disk.remount("rw,size=64m")
            assert main(["pipeline", job, "--lake", lake]) == 0
        assert main(["pipeline", "archive", "--lake", lake]) == 0
        check(spark, pipeline_app, lake, accepted)


def test_restarts_of_the_server_end_a_run_with_a_sentence_and_the_next_one_is_exact(
    spark: SparkSession, lake: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dice = random.Random(SEED)
    failed = 0
    with fallible_server() as server:
        monkeypatch.setenv("TARRY_DSN", server.dsn)
        accepted: set[str] = set()
        for turn in range(RESTARTS):
            with tarry.connect(server.dsn) as app:
                accepted |= some_traffic(app, turn)
            restarted = threading.Timer(dice.uniform(0, 10), server.restart)
            restarted.start()
            code = main(["pipeline", "run", "archive", "facts", "--lake", lake])
            restarted.join()
            if code != 0:
                failed += 1
                one_sentence(capsys, "database", "connection", "server")
            server.await_ready()
        print(f"{failed} of {RESTARTS} runs failed")
        assert failed, "no restart met a job"
        assert main(["pipeline", "run", "archive", "facts", "--lake", lake]) == 0
        with tarry.connect(server.dsn) as app:
            check(spark, app, lake, accepted)
