"""A Spark session for a command: started with a word to say so, watched while it works, its noise kept in a file."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tarry.edges.cli.session import Session
from tarry.edges.cli.signals import end_within

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.progress import Progress

_LOOK_EVERY_S = 0.2


@contextmanager
def spark_for(cli: Session, master: str | None) -> Generator[SparkSession]:
    """A session of our own is stopped at the end; one of a notebook or of spark-submit is not ours to stop."""
    from tarry.edges.spark.session import session

    submitted = "PYSPARK_GATEWAY_PORT" in os.environ or _is_running()
    if submitted or cli.debug:
        spark = session(master)
    else:
        with _starting(cli), noise_in_a_file() as log:
            spark = session(master)
        cli_log[0] = log
    with _told_to_stop():
        try:
            yield spark
        finally:
            if not submitted:
                _stop(spark)


def _is_running() -> bool:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        return False  # `session` has the sentence for it
    return SparkSession.getActiveSession() is not None


cli_log: list[Path | None] = [None]
"""Where the JVM writes what it has to say; for the hint of an error."""


@contextmanager
def noise_in_a_file() -> Generator[Path]:
    """The JVM inherits our stderr when it starts, and keeps it. It gets a file, and we get ours back."""
    handle, name = tempfile.mkstemp(prefix="tarry-spark-", suffix=".log")
    kept = os.dup(2)
    try:
        os.dup2(handle, 2)
        yield Path(name)
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(handle)


@contextmanager
def _starting(cli: Session) -> Generator[None]:
    if not wanted(cli):
        yield
        return
    from rich.console import Console

    # A stderr of its own: the one that everybody has is given away while the JVM starts.
    with os.fdopen(os.dup(2), "w") as stderr, Console(file=stderr).status("starting Spark …"):
        yield


@contextmanager
def _told_to_stop() -> Generator[None]:
    """A supervisor's SIGTERM ends a run as Ctrl-C does: what is open is closed, and the run is written down as failed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        end_within()  # Spark or the database may not answer; a run that was cut off is abandoned by the next
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _stop(spark: SparkSession) -> None:
    try:
        spark.stop()
    except Exception:
        # A JVM that has died cannot be stopped; why it died has been said.
        return


def alive(spark: SparkSession) -> bool:
    try:
        return spark.range(1).count() == 1
    except Exception:
        return False


def wanted(cli: Session) -> bool:
    return not cli.quiet and cli.printer.for_people and sys.stderr.isatty()


@contextmanager
def watched(cli: Session, spark: SparkSession, name: str) -> Generator[None]:
    """A bar for the tasks of the job that runs, on a terminal."""
    if not wanted(cli):
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description:<10}"),
        BarColumn(28),
        TextColumn("{task.fields[doing]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(name, total=None, doing="")
        ended = threading.Event()
        watcher = threading.Thread(target=_watch, args=(spark, progress, task, ended), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join(timeout=2)


def _watch(spark: SparkSession, progress: Progress, task: Any, ended: threading.Event) -> None:
    """Looks at the stages that run. Spark Connect has no such thing: there the bar only moves."""
    try:
        tracker = spark.sparkContext.statusTracker()
        while not ended.wait(_LOOK_EVERY_S):
            stages = [info for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage))]
            total, done = sum(info.numTasks for info in stages), sum(info.numCompletedTasks for info in stages)
            doing = f"{done}/{total} tasks" if total else ""
            progress.update(task, total=total or None, completed=done, doing=doing)
    except Exception:
        # Only a picture: a JVM that ends while we look is reported by the job itself.
        return
