"""Drivers and JVMs are killed with -9 wherever they are, while writers write, hold transactions open and roll back.

Afterwards the lake has every event that was committed, once, folds to the messages that are live, and its derived tables are
what DuckDB counts.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import psycopg
import pytest

import tarry
from tarry.app import App
from tarry.edges.spark.jobs import archive, facts, verify
from tarry.edges.spark.jobs.archive import ArchiveArgs
from tarry.edges.spark.jobs.facts import FactsArgs
from tarry.edges.spark.jobs.verify import VerifyArgs
from tarry.edges.spark.lake.lake import read_events
from tests.edges.spark.recount import Recount
from tests.kit.spark import PYTHON_PATH, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMEOUT_S = 180.0
BATCH_ROWS = 1_000
ROOT = Path(__file__).parents[4]
VICTIMS = ("all", "driver", "jvm")
# What can be seen of the jobs from outside, in the order in which it comes.
MOMENTS = ("planned", "writing", "written", "durable", "deriving", "derived", "compacting", "compacted")


class Writers:
    """Traffic that commits late, and sometimes not at all. Knows what was accepted."""

    def __init__(self, app: App, seed: int) -> None:
        self._app = app
        self._dice = random.Random(seed)
        self._stop = threading.Event()
        self.accepted: set[str] = set()
        self.late = self.rolled_back = 0
        self._threads = [threading.Thread(target=work) for work in (self._lively, self._hesitant)]

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *reason: Any) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(TIMEOUT_S)

    def _lively(self) -> None:
        """Offers, finishes, fails, drops: each at once."""
        queue = self._app.queue("lively")
        turn = 0
        while not self._stop.wait(0.1):
            turn += 1
            keys = [f"a-{turn}-{i}" for i in range(10)]
            queue.offer_many([tarry.Message(payload=turn, key=key) for key in keys])
            self.accepted |= {f"lively/{key}" for key in keys}
            for i, delivery in enumerate(queue.try_poll_many(8)):
                delivery.nack("no") if i == 0 else delivery.release() if i == 1 else delivery.ack()
            queue.drop(f"a-{turn}-9")

    def _hesitant(self) -> None:
        """Up to four transactions open at a time, ended in any order, one in four by a rollback."""
        assert self._app.dsn is not None
        queue = self._app.queue("hesitant")
        held: list[tuple[psycopg.Connection[Any], list[str]]] = []
        turn = 0
        while not self._stop.wait(0.1):
            turn += 1
            conn = psycopg.connect(self._app.dsn)
            keys = [f"b-{turn}-{i}" for i in range(self._dice.randint(1, 5))]
            queue.offer_many([tarry.Message(payload=turn, key=key) for key in keys], conn=conn)
            held.append((conn, keys))
            if len(held) > 4:
                self._end(*held.pop(self._dice.randrange(len(held))))
        for conn, keys in held:
            self._end(conn, keys)

    def _end(self, conn: psycopg.Connection[Any], keys: list[str]) -> None:
        if self._dice.random() < 0.25:
            conn.rollback()
            self.rolled_back += len(keys)
        else:
            conn.commit()
            self.late += len(keys)
            self.accepted |= {f"hesitant/{key}" for key in keys}
        conn.close()


@contextmanager
def driver(dsn: str, lake: str) -> Iterator[subprocess.Popen[bytes]]:
    """In a process group of its own, so that it can be ended with all that it has started."""
    command = [sys.executable, "-m", "tests.edges.spark.archive_driver", dsn, lake, str(BATCH_ROWS)]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([PYTHON_PATH, *sys.path])}
    log_path = Path(lake).parent / f"driver-{time.monotonic_ns()}.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environ, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(TIMEOUT_S)


def kill(process: subprocess.Popen[bytes], victim: str) -> None:
    if victim == "all":
        os.killpg(process.pid, signal.SIGKILL)
    elif victim == "driver":
        process.kill()
    else:
        jvms = [child for child in psutil.Process(process.pid).children(recursive=True) if child.name() == "java"]
        for jvm in jvms:
            jvm.kill()
    process.wait(TIMEOUT_S)


def await_moment(app: App, lake: str, moment: str, process: subprocess.Popen[bytes], pause: threading.Event) -> None:
    """Until a batch, a round or a compaction that is not there yet has come as far as this."""
    assert app.dsn is not None
    with psycopg.connect(app.dsn, autocommit=True) as conn:
        kind = "compaction" if moment.startswith("compact") else "archive"
        tables = {"deriving": "metrics", "derived": "open"}

        def numbers(*states: str) -> set[int]:
            rows = conn.execute(
                "select batch from tarry.archive_batch where state = any(%s) and kind = %s", (list(states), kind)
            ).fetchall()
            return {row[0] for row in rows}

        def writes() -> set[Path]:
            return set((Path(lake) / tables[moment]).glob("write=*"))

        before, deadline = numbers("planned", "durable", "abandoned"), time.monotonic() + TIMEOUT_S
        written = writes() if moment in tables else set[Path]()
        while time.monotonic() < deadline and process.poll() is None:
            if moment in tables:
                if writes() - written:
                    return
                pause.wait(0.002)
                continue
            if moment in ("durable", "compacted") and numbers("durable") - before:
                return
            for number in numbers("planned") - before:
                directory = Path(lake) / f"events/batch={number:08d}"
                if moment in ("planned", "compacting") or (moment == "writing" and directory.exists()):
                    return
                if moment == "written" and any(directory.glob("date=*/*/*.parquet")):
                    return
            pause.wait(0.002)
    raise AssertionError(f"no batch was {moment} within {TIMEOUT_S:.0f} s (the driver's exit: {process.poll()})")


def survives(spark: SparkSession, app: App, lake: str, kills: list[tuple[str, str, float]], seed: int) -> Writers:
    assert app.dsn is not None
    never = threading.Event()
    with Writers(app, seed) as writers:
        for victim, moment, later in kills:
            with driver(app.dsn, lake) as process:
                await_moment(app, lake, moment, process, never)
                never.wait(later)  # not to wait for something: to be somewhere
                kill(process, victim)
    archive.run(spark, app, ArchiveArgs(lake=lake))
    return writers


def check(spark: SparkSession, app: App, lake: str, writers: Writers) -> None:
    assert app.dsn is not None
    with psycopg.connect(app.dsn) as conn:
        committed = [row[0] for row in conn.execute("select id from tarry.event order by id").fetchall()]
    events = read_events(spark, app, lake)
    ids = sorted(row[0] for row in rows_of(events.select("id")))
    assert ids == committed, "every committed event is in the lake, once"
    offered = events.where("kind = 'offered'").selectExpr("concat(queue, '/', key)")
    assert {row[0] for row in rows_of(offered)} == writers.accepted, "what was accepted, and nothing else"
    assert writers.late > 0
    assert writers.rolled_back > 0
    summary = verify.run(spark, app, VerifyArgs(lake=lake))
    assert summary.problems == ()


def test_a_kill_loses_nothing_and_doubles_nothing(spark: SparkSession, pipeline_app: App, lake: str) -> None:
    kills = [("all", "writing", 0.0)]
    writers = survives(spark, pipeline_app, lake, kills, seed=1)
    check(spark, pipeline_app, lake, writers)
    manifest = pipeline_app.pipeline.manifest
    assert manifest.take_over(lake, 0) is None, "nothing is left undone"


@pytest.mark.chaos
def test_many_kills_at_random_points_lose_nothing_and_double_nothing(
    spark: SparkSession, pipeline_app: App, lake: str
) -> None:
    dice = random.Random(20261115)
    kills = [(VICTIMS[i % 3], MOMENTS[i % 8], dice.uniform(0, 0.5)) for i in range(24)]
    writers = survives(spark, pipeline_app, lake, kills, seed=2)
    check(spark, pipeline_app, lake, writers)
    facts.run(spark, pipeline_app, FactsArgs(lake=lake))
    assert pipeline_app.dsn is not None
    with Recount(pipeline_app.dsn) as recount:
        recount.check(lake)  # facts, minutes and hours, counted from the journal without our code
