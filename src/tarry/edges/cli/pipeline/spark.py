"""The Spark session of a command: start, progress bar, and JVM log."""

from __future__ import annotations

import logging
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from tarry.core.errors import TarryError
from tarry.edges.cli.context import CommandSession
from tarry.edges.cli.exit_codes import CommandFailed
from tarry.edges.cli.processes.signals import end_within

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tarry.app import App

_POLL_EVERY_S = 0.2
_JVM_EXITS_WITHIN_S = 4.0


@contextmanager
def spark_for(cli: CommandSession, app: App, master: str | None) -> Generator[SparkSession]:
    """A session that is stopped at the end, unless a notebook or spark-submit started it."""
    _ = app.pipeline  # a store without a pipeline refuses before Spark starts
    from tarry.edges.spark.session import is_submitted, session

    submitted = is_submitted(os.environ) or _is_running()
    with _stopped_by_signals(cli) as handle, ExitStack() as ending:
        if submitted:
            spark = session(master)
        else:
            ending.callback(_end_jvm)
            spark = _started(cli, master)
            ending.callback(_stop, spark)
        handle()  # a new context has its own handler of Ctrl-C
        yield spark


def _started(cli: CommandSession, master: str | None) -> SparkSession:
    from tarry.edges.spark.session import keep_for_jobs, session

    if cli.debug:
        return keep_for_jobs(session(master))
    with _starting(cli), jvm_log.recording():
        try:
            return keep_for_jobs(session(master))
        except TarryError:
            raise
        except Exception as failure:
            raise CommandFailed(f"Spark did not start: {reason(failure)}", hint=jvm_log.hint()) from failure


def _stop(spark: SparkSession) -> None:
    with suppress(Exception):  # the JVM has exited; its error was reported
        spark.stop()


def _end_jvm() -> None:
    """Wait until the JVM has exited: it removes its temporary files then."""
    with suppress(Exception):  # it has exited, or was never started
        from pyspark import SparkContext

        gateway: Any = SparkContext._gateway  # pyright: ignore[reportPrivateUsage]
        SparkContext._gateway = SparkContext._jvm = None  # pyright: ignore[reportPrivateUsage]
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(_JVM_EXITS_WITHIN_S)


def _is_running() -> bool:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        return False  # `session` reports it
    return SparkSession.getActiveSession() is not None


@dataclass(slots=True)
class JvmLog:
    """What the JVM writes to stderr. It has no name in the temporary directory until an error hint refers to it."""

    _file: IO[bytes] | None = None
    _copy: Path | None = None

    @contextmanager
    def recording(self) -> Generator[None]:
        """Redirect stderr while the JVM starts: it inherits the file and keeps it."""
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - read as long as this process runs
        stderr = os.dup(2)
        try:
            os.dup2(self._file.fileno(), 2)
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)

    def hint(self) -> str:
        hint, log = "for the traceback run the command again with --debug", self.copy()
        return hint if log is None else f"{hint}; Spark's log: {log}"

    def copy(self) -> Path | None:
        """A file with what was written so far, for an error that refers to it."""
        if self._file is None:
            return None
        if self._copy is None:
            handle, name = tempfile.mkstemp(prefix="tarry-spark-", suffix=".log")
            os.close(handle)
            self._copy = Path(name)
        # Not by seeking: the JVM shares the position.
        log = self._file.fileno()
        self._copy.write_bytes(os.pread(log, os.fstat(log).st_size, 0))
        return self._copy


jvm_log = JvmLog()


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
def _stopped_by_signals(cli: CommandSession) -> Generator[Callable[[], None]]:
    """Handle SIGTERM and Ctrl-C: close connections and record the run as failed. Yields a function that installs the
    handlers again.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    received = set[int]()

    def stop(number: int, _: object) -> None:
        received.add(number)
        interrupted.set()
        # py4j logs a traceback for every cut-off call to the root logger. Records of other loggers are not filtered.
        logging.getLogger().addFilter(lambda record: False)
        end_within()  # Spark or the database may hang; the next run marks this one as abandoned
        raise KeyboardInterrupt

    def handle() -> None:
        for number in before:
            signal.signal(number, stop)

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    handle()
    try:
        yield handle
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if signal.SIGTERM in received:
            cli.note("stopped by SIGTERM")


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
