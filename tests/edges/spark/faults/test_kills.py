"""Drivers, JVMs, executors and workers are killed with -9 wherever they are, while writers write, hold transactions open and
roll back.

Afterwards the lake has every event that was committed, once, folds to the messages that are live, and its derived tables are
what DuckDB counts. Every write of the sink is there once, and what was to be forgotten is nowhere.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from math import isinf
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import psutil
import psycopg
import pytest

from tarry.app import App
from tarry.edges.spark.jobs import archive, facts
from tarry.edges.spark.jobs.archive import ArchiveArgs
from tarry.edges.spark.jobs.facts import FactsArgs
from tests.edges.spark.faults.driver import SINK_ROWS
from tests.edges.spark.faults.traffic import TIMEOUT_S, Writers, check
from tests.edges.spark.recount import Recount, events_of
from tests.kit.spark import PYTHON_PATH, keys_in_files
from tests.kit.standalone import Cluster, cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[4]
SEED = int(os.environ.get("PIPELINE_KILLS_SEED", "20261118"))
WITHIN_S = float(os.environ.get("PIPELINE_KILLS_WITHIN_S", "inf"))
"""No kill after this time: on a busy machine all of them take an hour."""
JOBS = ("archive", "compact", "facts", "sink", "forget")
FATAL = ("driver", "JVM", "driver and JVM")
ON_LAPTOP = [(job, victim) for job in JOBS for victim in FATAL]
ON_CLUSTER = [
    *((job, victim) for job in JOBS for victim in ("executor", "worker")),
    *((job, "Python worker") for job in ("archive", "sink")),  # the others have none
]


@dataclass(frozen=True, slots=True)
class Kill:
    """One line of the record, `build/pipeline-kills.jsonl`."""

    job: str
    victim: str
    after_s: float
    """Since the job was begun."""
    usual_s: float
    """What it took before, undisturbed."""
    then: str


class Driver:
    """A process group of its own, so that it can be ended with all that it has started."""

    def __init__(self, dsn: str, lake: str, master: str) -> None:
        command = [sys.executable, "-m", "tests.edges.spark.faults.driver", dsn, lake, master]
        environ = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": os.pathsep.join([PYTHON_PATH, *sys.path])}
        self.log = Path(lake).parent / f"driver-{time.monotonic_ns()}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=environ, text=True, bufsize=1, start_new_session=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip
        self._lines: SimpleQueue[str | None] = SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()
        self.await_line(TIMEOUT_S)

    def begin(self, job: str, argument: object = "") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{job} {argument}\n")

    def await_line(self, seconds: float) -> bool:
        """Whether it has come that far in that time."""
        try:
            line = self._lines.get(timeout=seconds)
        except Empty:
            return False
        assert line is not None, f"the driver ended:\n{self.log.read_text()[-4000:]}"
        return True

    def run(self, job: str, argument: object = "") -> float:
        started = time.monotonic()
        self.begin(job, argument)
        assert self.await_line(TIMEOUT_S), f"{job} does not end"
        return time.monotonic() - started

    def kill(self, victim: str) -> None:
        if victim == "driver and JVM":
            os.killpg(self.process.pid, signal.SIGKILL)
        elif victim == "driver":
            self.process.kill()
        else:
            for child in psutil.Process(self.process.pid).children(recursive=True):
                if child.name() == "java":
                    child.kill()
        assert self.process.wait(TIMEOUT_S) != 0

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(TIMEOUT_S)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with suppress(ValueError):  # closed meanwhile
            for line in self.process.stdout:
                if line.strip() in ("ready", "done"):
                    self._lines.put(line)
        self._lines.put(None)


@contextmanager
def driver(dsn: str, lake: str, master: str) -> Iterator[Driver]:
    made = Driver(dsn, lake, master)
    try:
        yield made
    finally:
        made.close()


class Run:
    """Jobs one after the other, each disturbed by a kill, and begun again until it is done."""

    def __init__(self, app: App, lake: str, stack: ExitStack) -> None:
        assert app.dsn is not None
        self._app, self._dsn, self._lake, self._stack = app, app.dsn, lake, stack
        self._dice = random.Random(SEED)
        self._record = ROOT / "build" / "pipeline-kills.jsonl"
        self._record.parent.mkdir(exist_ok=True)
        self._record.write_text("")
        self._never = threading.Event()
        self._started = time.monotonic()
        self._driver: Driver | None = None
        self._cluster: Cluster | None = None
        self._usual: dict[str, float] = {}
        self._numbers = 0
        self.kills: list[Kill] = []
        self.writes: list[int] = []
        self.forgotten: dict[str, list[dict[str, Any]]] = {}
        """The events of each key, as they were."""

    def all(self, kills: Sequence[tuple[str, str]], spark_cluster: Cluster | None = None) -> None:
        """On a cluster, or on this machine."""
        self._driver, self._cluster = None, spark_cluster
        for job in JOBS:  # undisturbed, to know how long each takes
            self._prepared(job)
            self._usual[job] = self._at_work().run(job, self._argument(job))
        for job, victim in self._dice.sample(kills, len(kills)):
            if time.monotonic() - self._started > WITHIN_S:
                return
            self._prepared(job)
            self._disturbed(job, self._argument(job), victim)

    def _disturbed(self, job: str, argument: object, victim: str) -> None:
        for _ in range(10):
            at_work, usual_s = self._at_work(), self._usual[job]
            after_s = self._dice.uniform(0.02, 0.95) * usual_s
            started = time.monotonic()
            at_work.begin(job, argument)
            is_done = at_work.await_line(after_s)
            after_s = time.monotonic() - started
            if is_done or not self._struck(at_work, victim):
                self._usual[job] = time.monotonic() - started  # it was faster than before: that was no kill
                argument = self._argument(job) if job in ("sink", "forget") else argument
                self._prepared(job)
                continue
            if victim in FATAL:
                self._driver = None
                self._at_work().run(job, argument)  # the next one completes it
                then = "completed by the next driver"
            else:
                assert at_work.await_line(TIMEOUT_S), f"{job} does not end after the kill of a {victim}"
                then = f"completed by itself, {time.monotonic() - started:.1f} s after it was begun"
            self.kills.append(Kill(job, victim, round(after_s, 2), round(usual_s, 2), then))
            with self._record.open("a") as record:
                record.write(json.dumps(asdict(self.kills[-1])) + "\n")
            return
        raise AssertionError(f"{job} was always faster than the kill")

    def _struck(self, at_work: Driver, victim: str) -> bool:
        if self._cluster is None:
            at_work.kill(victim)
        elif victim == "worker":
            self._cluster.kill_worker(self._dice.choice(("127.0.0.1", "127.0.0.2")))
        else:
            deadline = time.monotonic() + TIMEOUT_S
            processes = self._cluster.executors if victim == "executor" else self._cluster.python_workers
            while not (running := processes()):
                assert time.monotonic() < deadline, f"there is no {victim}"
                if at_work.await_line(0.01):
                    return False
            with suppress(psutil.NoSuchProcess):
                self._dice.choice(running).kill()
        return True

    def _at_work(self) -> Driver:
        if self._driver is None:
            master = "local[2]" if self._cluster is None else self._cluster.url
            self._driver = self._stack.enter_context(driver(self._dsn, self._lake, master))
        return self._driver

    def _prepared(self, job: str) -> None:
        """Events come by themselves; what needs an archive with new ones gets it."""
        self._never.wait(0.5)
        if job in ("compact", "facts"):
            self._at_work().run("archive")

    def _argument(self, job: str) -> object:
        self._numbers += 1
        if job == "sink":
            self.writes.append(self._numbers)
            return self._numbers
        if job == "forget":
            key = f"person-{self._numbers}"
            people = self._app.queue("people")
            people.offer(key, {"secret": key})
            for delivery in people.try_poll_many(1):
                delivery.ack()
            with psycopg.connect(self._dsn) as conn:
                self.forgotten[key] = events_of(conn, key)
            return key
        return ""


def test_a_kill_loses_nothing_and_doubles_nothing(spark: SparkSession, pipeline_app: App, lake: str) -> None:
    assert pipeline_app.dsn is not None
    with Writers(pipeline_app, seed=1) as writers, driver(pipeline_app.dsn, lake, "local[2]") as killed:
        killed.begin("archive")
        deadline = time.monotonic() + TIMEOUT_S
        while not list(Path(lake).glob("events/batch=*")):
            assert time.monotonic() < deadline, "nothing is written"
            assert not killed.await_line(0.002), "it was done before it was killed"
        killed.kill("driver and JVM")
    archive.run(spark, pipeline_app, ArchiveArgs(lake=lake))
    check(spark, pipeline_app, lake, writers.accepted)
    assert writers.late > 0
    assert writers.rolled_back > 0
    assert pipeline_app.pipeline.manifest.take_over(lake, 0) is None, "nothing is left undone"


@pytest.mark.chaos
def test_kills_at_random_points_of_every_job_lose_nothing_and_double_nothing(
    spark: SparkSession, pipeline_app: App, lake: str, tmp_path: Path
) -> None:
    app = pipeline_app
    with ExitStack() as stack, Writers(app, seed=2, every_s=1) as writers:
        run = Run(app, lake, stack)
        with cluster(tmp_path) as spark_cluster:
            run.all(ON_CLUSTER, spark_cluster)
            stack.pop_all().close()  # its driver goes before the cluster
        run.all(ON_LAPTOP)
    assert len(run.kills) == len(ON_CLUSTER) + len(ON_LAPTOP) >= 24 or not isinf(WITHIN_S)
    archive.run(spark, app, ArchiveArgs(lake=lake))
    sunk = {f"sunk/w{number}-{n}" for number in run.writes for n in range(SINK_ROWS)}
    check(spark, app, lake, writers.accepted | sunk)
    facts.run(spark, app, FactsArgs(lake=lake))
    assert app.dsn is not None
    with Recount(app.dsn) as recount:  # facts, minutes and hours, counted from the journal without our code
        recount.check(lake, erased=[event for events in run.forgotten.values() for event in events])
    assert not keys_in_files(lake) & run.forgotten.keys()
