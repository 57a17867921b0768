"""tarry verify: is everything that was accepted still somewhere, and nothing twice?"""

from __future__ import annotations

from typing import Any

import typer

from tarry.edges.cli.exits import ExitCode
from tarry.edges.cli.output import Cell
from tarry.edges.cli.pipeline import Lake, Master
from tarry.edges.cli.session import Session, command


def register(app: typer.Typer) -> None:
    command(app, "verify", examples=("tarry verify", "tarry verify --lake s3a://lake/tarry -o json"))(verify)


def verify(cli: Session, lake: Lake = None, master: Master = None) -> ExitCode | None:
    """Check archive, journal and live messages against each other.

    Archive and journal together tell which messages must be live; that is compared, as sets, with those that are. Changes
    nothing. Ends with 7 if anything is missing, doubled or different, and shows some of it.
    """
    from tarry.edges.cli.pipeline_jobs import arguments, load
    from tarry.edges.cli.pipeline_spark import spark_for, watched
    from tarry.edges.plain import data_of

    module = load("verify")
    with cli.open() as opened, spark_for(cli, master) as spark, watched(cli, spark, "verify"):
        summary = module.run(spark, opened, arguments(module, {"lake": lake}))
    good = bool(summary.ok)
    if cli.printer.for_people:
        cli.printer.lines([Cell(str(summary.line()), "green" if good else "red"), *_samples(summary)])
    else:
        cli.printer.record("tarry.verify/1", data_of(summary), ())
    return None if good else ExitCode.CHECK_FAILED


def _samples(summary: Any) -> list[str]:
    """Some of what differs, each on a line under its sentence."""
    lines: list[str] = []
    for problem in summary.problems:
        lines += [f"  {problem.what}", *(f"    {sample}" for sample in problem.samples)]
    return lines
