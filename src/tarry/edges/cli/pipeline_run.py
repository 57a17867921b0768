"""Jobs, one after the other, once or again and again: what each had to say, and how the whole ended."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tarry.core.errors import TarryError
from tarry.edges.cli.exits import CommandFailed, ExitCode, Usage, code_of
from tarry.edges.cli.pipeline_jobs import Job, arguments, load
from tarry.edges.cli.pipeline_spark import alive, cli_log, spark_for, watched
from tarry.edges.cli.session import Session
from tarry.edges.cli.text import shown, without_secrets
from tarry.edges.plain import data_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tarry.app import App

SCHEMA = "tarry.pipeline.run/1"


@dataclass(frozen=True, slots=True)
class Ended:
    """How one job ended."""

    job: str
    seconds: float
    summary: Any = None
    error: str | None = None
    hint: str | None = None
    code: ExitCode = ExitCode.OK

    @property
    def ok(self) -> bool:
        return self.error is None

    def data(self) -> dict[str, Any]:
        return {
            "job": self.job,
            "ok": self.ok,
            "seconds": round(self.seconds, 3),
            "line": None if self.summary is None else str(self.summary.line()),
            "summary": None if self.summary is None else data_of(self.summary),
            "error": self.error,
            "hint": self.hint,
        }


def run_jobs(cli: Session, jobs: Sequence[Job], *, master: str | None, every: timedelta | None) -> ExitCode:
    if every is not None and not (cli.printer.for_people or cli.printer.line_by_line):
        raise Usage("a run that goes on has no end to its JSON", hint="use --output jsonl: one object per job")
    # Before Spark starts: it takes seconds, and a job that is not there is known at once.
    modules = {job.name: load(job.name) for job in jobs}
    with ExitStack() as stack:
        app = stack.enter_context(cli.open())
        spark = stack.enter_context(spark_for(cli, master))
        while True:
            began = time.monotonic()
            ended = [_one(cli, spark, app, job, modules[job.name]) for job in jobs]
            if every is None:
                _document(cli, ended)
                return _code(ended)
            if not all(one.ok for one in ended) and not alive(spark):
                raise CommandFailed("Spark has ended; start the command again", ExitCode.FAILED, hint=_log_hint())
            _pause(cli, every - timedelta(seconds=time.monotonic() - began), every)


def _one(cli: Session, spark: SparkSession, app: App, job: Job, module: Any) -> Ended:
    began = time.monotonic()
    try:
        with watched(cli, spark, job.name):
            summary = module.run(spark, app, arguments(module, job.given))
        ended = Ended(job.name, time.monotonic() - began, summary)
    except TarryError as error:
        ended = Ended(
            job.name, time.monotonic() - began, error=without_secrets(str(error)), hint=error.hint, code=code_of(error)
        )
    except Exception as error:
        if cli.debug:
            sys.stderr.write(without_secrets("".join(traceback.format_exception(error))))
        said = without_secrets(f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
        ended = Ended(job.name, time.monotonic() - began, error=said, hint=_log_hint(), code=ExitCode.FAILED)
    _tell(cli, ended)
    return ended


def _tell(cli: Session, ended: Ended) -> None:
    """At once, one line each: a run may take a while, and one that goes on never ends."""
    if cli.printer.line_by_line:
        cli.printer.listing(SCHEMA, {"jobs": [ended.data()]}, (), ())
    elif cli.printer.for_people and ended.ok:
        cli.printer.lines([str(ended.summary.line())])
    if not ended.ok and (cli.printer.for_people or cli.printer.line_by_line):
        sys.stderr.write(f"error: {shown(ended.job)}: {shown(' '.join((ended.error or '').split()))}\n")
        if ended.hint:
            sys.stderr.write(f"hint: {shown(ended.hint)}\n")
    cli.printer.flush()


def _document(cli: Session, ended: Sequence[Ended]) -> None:
    if not (cli.printer.for_people or cli.printer.line_by_line):
        more = {"ok": all(one.ok for one in ended)}
        cli.printer.listing(SCHEMA, {"jobs": [one.data() for one in ended]}, (), (), more=more)


def _code(ended: Sequence[Ended]) -> ExitCode:
    good = sum(one.ok for one in ended)
    if good == len(ended) or len(ended) == 1:
        return ended[0].code
    return ExitCode.PARTLY if good else ExitCode.FAILED


def _pause(cli: Session, left: timedelta, every: timedelta) -> None:
    if left <= timedelta(0):
        cli.note(f"the round took longer than {every.total_seconds():g} s: the next one begins at once")
        return
    # An event that nobody sets: a wait that Ctrl-C ends at once.
    threading.Event().wait(left.total_seconds())


def _log_hint() -> str:
    log = cli_log[0]
    return "for the traceback run it again with --debug" + (f"; Spark's log: {log}" if log else "")
