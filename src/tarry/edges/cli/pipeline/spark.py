"""The Spark session of a command: start, progress bar, and JVM log."""

from __future__ import annotations

import logging
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tarry.edges.cli.context import CommandSession
from tarry.edges.cli.processes.signals import end_within

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tarry.app import App

_POLL_EVERY_S = 0.2


@contextmanager
def spark_for(cli: CommandSession, app: App, master: str | None) -> Generator[SparkSession]:
    """A session that is stopped at the end, unless a notebook or spark-submit started it."""
    _ = app.pipeline  # a store without a pipeline refuses before Spark starts
    from tarry.edges.spark.session import is_submitted, keep_for_jobs, session

    submitted = is_submitted(os.environ) or _is_running()
    if submitted or cli.debug:
        spark = session(master)
    else:
        with _starting(cli), jvm_log_in_file() as log:
            spark = keep_for_jobs(session(master))
        jvm_log.path = log
    with _interrupted_by_signals():
        try:
            yield spark
        finally:
            if not submitted:
                with suppress(Exception):  # the JVM has exited; its error was reported
                    spark.stop()
            jvm_log.remove_unless_mentioned()


def _is_running() -> bool:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        return False  # `session` reports it
    return SparkSession.getActiveSession() is not None


@dataclass(slots=True)
class JvmLog:
    """The JVM log file. It is kept if an error hint has named it."""

    path: Path | None = None
    is_mentioned: bool = False

    def hint(self) -> str:
        self.is_mentioned = self.path is not None
        return "for the traceback run the command again with --debug" + (
            f"; Spark's log: {self.path}" if self.path else ""
        )

    def remove_unless_mentioned(self) -> None:
        if self.path is not None and not self.is_mentioned:
            self.path.unlink(missing_ok=True)


jvm_log = JvmLog()


@contextmanager
def jvm_log_in_file() -> Generator[Path]:
    """Redirect stderr to a file while the JVM starts: it inherits the file and keeps it."""
    handle, name = tempfile.mkstemp(prefix="tarry-spark-", suffix=".log")
    stderr = os.dup(2)
    try:
        os.dup2(handle, 2)
        yield Path(name)
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(handle)


@contextmanager
def _starting(cli: CommandSession) -> Generator[None]:
    if not cli.shows_progress:
        yield
        return
    from rich.console import Console

    # A duplicate: stderr itself is redirected while the JVM starts.
    with os.fdopen(os.dup(2), "w") as stderr, Console(file=stderr).status("starting Spark …"):
        yield


interrupted = threading.Event()
"""Set by SIGTERM and Ctrl-C: later job errors are consequences, because calls into the JVM were cut off."""


@contextmanager
def _interrupted_by_signals() -> Generator[None]:
    """Handle SIGTERM and Ctrl-C: close connections and record the run as failed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        interrupted.set()
        # py4j logs a traceback for every cut-off call to the root logger. Records of other loggers are not filtered.
        logging.getLogger().addFilter(lambda record: False)
        end_within()  # Spark or the database may hang; the next run marks this one as abandoned
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def alive(spark: SparkSession) -> bool:
    try:
        return spark.range(1).count() == 1
    except Exception:
        return False


def reason(failure: Exception) -> str:
    """Why a job failed, in one line: the innermost cause, which Spark wraps once per layer, and the last line of a
    traceback of its Python processes. The message of an I/O error is enough without the class that Java gives it.
    """
    kind, text = type(failure).__name__, str(failure)
    try:
        java: Any = getattr(failure, "java_exception", None) or getattr(failure, "_origin", None)
        while java is not None and (cause := java.getCause()) is not None:
            java = cause
        if java is not None:
            kind, text = str(java.getClass().getName()), str(java.getMessage() or "")
    except Exception:  # the JVM has exited
        text = str(failure)
    if "Traceback (most recent call last)" in text:
        kind, text = "", [line for line in text.splitlines() if line.strip()][-1]
    line = " ".join(text.split())[:300]
    return line if kind.startswith(("java.io.", "java.nio.")) or not kind else f"{kind.rpartition('.')[2]}: {line}"


@contextmanager
def progress_bar(cli: CommandSession, spark: SparkSession, name: str) -> Generator[None]:
    """A progress bar for the tasks of the job, if stderr is a terminal."""
    if not cli.shows_progress:
        yield
        return
    with cli.progress(name) as show:
        ended = threading.Event()
        watcher = threading.Thread(target=_watch, args=(spark, show, ended), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join(timeout=2)


def _watch(spark: SparkSession, show: Callable[..., None], ended: threading.Event) -> None:
    """Poll the active stages. Spark Connect has no status tracker: its bar shows no numbers."""
    try:
        tracker = spark.sparkContext.statusTracker()
        while not ended.wait(_POLL_EVERY_S):
            stages = [info for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage))]
            total, done = sum(info.numTasks for info in stages), sum(info.numCompletedTasks for info in stages)
            show(total=total or None, completed=done, text=f"{done}/{total} tasks" if total else "")
    except Exception:
        return  # the job itself reports that the JVM has exited
