"""Runs pipeline jobs in order, once or periodically, and reports their results."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING, Any, get_type_hints

from tarry.core.errors import TarryError
from tarry.core.extras import needs_extra
from tarry.edges.cli.context import CommandSession
from tarry.edges.cli.exit_codes import CommandFailed, ExitCode, Usage, code_of
from tarry.edges.cli.import_string import imported, wrong_type
from tarry.edges.cli.output.text import shown
from tarry.edges.cli.pipeline.spark import alive, interrupted, jvm_log, progress_bar, reason, spark_for
from tarry.edges.secrets import without_secrets
from tarry.wire.base import data_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tarry.app import App

IN_ORDER = ("archive", "facts", "metrics", "consumers", "anomalies", "forecast")
"""In order: each job depends on those before it."""
ROUTINE = (*IN_ORDER, "compact")
"""Jobs that `tarry pipeline run` runs."""
ALL = (*ROUTINE, "prune")
_SCHEMA = "tarry.pipeline.run/1"


@dataclass(frozen=True, slots=True)
class JobResult:
    """The result of one job, with the fields of its JSON form."""

    job: str
    ok: bool
    seconds: float
    line: str | None
    summary: Any
    error: str | None
    hint: str | None
    code: ExitCode = field(repr=False)


def chosen(names: Sequence[str], *, prune: bool) -> list[str]:
    """The jobs to run, in order of their dependencies."""
    unknown = [name for name in names if name not in ALL]
    if unknown:
        raise Usage(f"there is no job {unknown[0]!r:.80}", hint=f"the jobs are {', '.join(ALL)}")
    selected = {*(names or ROUTINE), *(("prune",) if prune else ())}
    return [name for name in ALL if name in selected]


def load(name: str) -> Any:
    """The module of a job."""
    with needs_extra("spark", "the data pipeline"):
        return import_module(f"tarry.edges.spark.jobs.{name}")


def registry_of(target: str | None, zone: str | None, holidays: Sequence[str]) -> Any:
    """The user's detectors with the user's calendar: a registry, or one detector added to the built-in ones.

    None: the built-in detectors, in UTC.
    """
    if target is None and zone is None and not holidays:
        return None
    load("anomalies")  # reports a missing installation
    registry = _detectors(target)
    if zone is None and not holidays:
        return registry
    calendar = registry.calendar
    return registry.with_calendar(zone or calendar.zone, map(_date, holidays))


def _date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise Usage(f"--holiday must be a date, got {text!r:.80}", hint="write it like 2026-12-25") from None


def _detectors(target: str | None) -> Any:
    from tarry.edges.spark.jobs.anomalies import BUILT_IN
    from tarry.edges.spark.transforms.anomalies.registry import Detector, Registry

    if target is None:
        return BUILT_IN
    _, value = imported(target, what="registry", example="tarry pipeline anomalies --detectors shop.watch:registry")
    if isinstance(value, Detector):
        return BUILT_IN.with_detector(value)
    if not isinstance(value, Registry):
        raise wrong_type(target, value, "a registry or a detector", hint="see docs/explanation/anomalies.md")
    return value


def arguments(module: Any, given: Mapping[str, Any]) -> Any:
    """The arguments of a job: the given options, and the job's defaults for the others."""
    kind: Any = getattr(module, module.__name__.rpartition(".")[2].capitalize() + "Args")
    kinds = get_type_hints(kind)

    def value_of(name: str, value: Any) -> Any:
        is_enum = isinstance(kinds[name], type) and issubclass(kinds[name], Enum)
        return kinds[name](value) if is_enum else value

    return kind(**{name: value_of(name, value) for name, value in given.items() if value is not None})


def run_jobs(
    cli: CommandSession, jobs: Mapping[str, Mapping[str, Any]], master: str | None, *, every: timedelta | None = None
) -> ExitCode:
    """Run jobs by name with command-line options. None: the job's default."""
    if every is not None and not (cli.printer.for_people or cli.printer.line_by_line):
        raise Usage("--every cannot print one JSON document", hint="use --output jsonl: one object per job")
    # Loaded before Spark starts, which takes seconds: an unknown job fails immediately.
    modules = {name: load(name) for name in jobs}
    with cli.open() as app, spark_for(cli, app, master) as spark:
        while True:
            started_s = time.monotonic()
            results = [_run(cli, spark, app, name, modules[name], given) for name, given in jobs.items()]
            if every is None:
                if not (cli.printer.for_people or cli.printer.line_by_line):
                    ok = all(result.ok for result in results)
                    cli.printer.record(_SCHEMA, {"ok": ok, "jobs": [data_of(result) for result in results]})
                return _code(results)
            if not all(result.ok for result in results) and not alive(spark):
                raise CommandFailed("Spark has ended; start the command again", hint=jvm_log.hint())
            _pause(cli, every - timedelta(seconds=time.monotonic() - started_s), every)


def _run(
    cli: CommandSession, spark: SparkSession, app: App, name: str, module: Any, given: Mapping[str, Any]
) -> JobResult:
    started_s = time.monotonic()
    summary = line = error = hint = None
    code = ExitCode.OK
    try:
        with progress_bar(cli, spark, name):
            summary = module.run(spark, app, arguments(module, given))
        line = str(summary.line())
    except TarryError as failure:
        error, hint, code = without_secrets(failure.message), failure.hint, code_of(failure)
    except Exception as failure:
        if interrupted.is_set():
            raise KeyboardInterrupt from failure
        if cli.debug:
            sys.stderr.write(without_secrets("".join(traceback.format_exception(failure))))
        error = without_secrets(reason(failure))
        hint, code = jvm_log.hint(), ExitCode.FAILED
    seconds = round(time.monotonic() - started_s, 3)
    result = JobResult(name, error is None, seconds, line, summary, error, hint, code)
    _print(cli, result)
    return result


def _print(cli: CommandSession, result: JobResult) -> None:
    """Print the result as soon as the job finishes. A JSON document is printed after the last job."""
    if cli.printer.line_by_line:
        cli.printer.record(_SCHEMA, data_of(result))
    elif cli.printer.for_people and result.ok:
        cli.printer.lines([f"{result.line} ({result.seconds:.1f} s)"])
    if not result.ok and (cli.printer.for_people or cli.printer.line_by_line):
        sys.stderr.write(f"error: {shown(result.job)}: {shown(' '.join((result.error or '').split()))}\n")
        if result.hint:
            sys.stderr.write(f"hint: {shown(result.hint)}\n")
    cli.printer.flush()


def _code(results: Sequence[JobResult]) -> ExitCode:
    succeeded = sum(result.ok for result in results)
    if succeeded == len(results) or len(results) == 1:
        return results[0].code
    return ExitCode.PARTLY if succeeded else ExitCode.FAILED


def _pause(cli: CommandSession, left: timedelta, every: timedelta) -> None:
    if left <= timedelta(0):
        cli.note(f"the round took longer than {every.total_seconds():g} s: the next one starts immediately")
    else:
        threading.Event().wait(left.total_seconds())  # never set: a wait that Ctrl-C interrupts immediately
