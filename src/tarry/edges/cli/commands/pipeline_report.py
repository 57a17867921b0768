"""tarry pipeline report and status: what the pipeline found, and how it is. Neither needs Spark."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tarry.edges.cli.exits import CommandFailed, ExitCode, Usage
from tarry.edges.cli.output import Cell, Column
from tarry.edges.cli.pipeline import Lake, app
from tarry.edges.cli.session import Session, command
from tarry.edges.cli.text import plural
from tarry.edges.times import duration, exact, instant, roughly

if TYPE_CHECKING:
    from tarry.core.pipeline import PastRun
    from tarry.edges.spark.report.values import Report

_RUNS = (Column("job", style="bold"), Column("state"), Column("last run"), Column("took", right=True), Column("said"))
_LAKE = Column("lake")
_STATES = {"done": "green", "failed": "red", "lost": "red", "running": "yellow"}


@command(
    app,
    "report",
    examples=(
        "tarry pipeline report",
        "tarry pipeline report --html report.html --last 7d",
        "tarry pipeline report --queue orders -o json",
    ),
)
def report(
    cli: Session,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a page with plots, complete in one file.")
    ] = None,
    last: Annotated[str, typer.Option("--last", metavar="DURATION", help="How far to look back.")] = "24h",
    queue: Annotated[str | None, typer.Option("--queue", metavar="NAME", help="This one only.")] = None,
) -> None:
    """Show what the pipeline has found.

    Throughput, lag, failures, consumers, anomalies and the forecast, as the last run left them. Needs no Spark.
    """
    from tarry.edges.plain import data_of

    back = duration(last, "--last")
    if not back:
        raise Usage("--last is longer than nothing")
    with cli.open() as opened:
        from tarry.edges.spark.report.gather import gathered
        from tarry.edges.spark.report.values import floored

        if queue is not None:
            opened.queues.get(queue)
        now = opened.store.now()
        found = gathered(opened, queue=queue, since=floored(now - back, timedelta(minutes=1)), until=now)
    if html is not None:
        write_html(found, html)
    if cli.printer.for_people:
        show(cli, found)
        if html is not None:
            cli.note(f"the page is in {html}")
    else:
        more = {"html": None if html is None else str(html)}
        cli.printer.record("tarry.pipeline.report/1", {**data_of(found), **more}, ())


def write_html(found: Report, path: Path) -> None:
    """Complete or not at all: a page that somebody looks at is never half written."""
    from tarry.edges.spark.report.html import page

    fresh = path.with_name(f".{path.name}.new")
    try:
        fresh.write_text(page(found), encoding="utf-8")
        fresh.replace(path)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise CommandFailed(f"the report cannot be written: {error}", ExitCode.FAILED) from error


def show(cli: Session, found: Report) -> None:
    import sys

    from rich.console import Console

    from tarry.edges.spark.report.terminal import rendered

    width = None if sys.stdout.isatty() else 140
    plain: dict[str, Any] = {} if cli.printer.colored else {"color_system": None}
    console = Console(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False, **plain)
    console.print(rendered(found, console.width))


@command(app, "status", examples=("tarry pipeline status", "tarry pipeline status -o json"))
def status(cli: Session, lake: Lake = None) -> ExitCode | None:
    """Show when each job last ran, and what is archived.

    Changes nothing and needs no Spark. Where there are several lakes, a job has a row for each. Ends with 7 if the last run
    of a job failed, whatever the lake.
    """
    from tarry.app import default_lake
    from tarry.edges.plain import data_of

    with cli.open() as opened:
        from tarry.edges.spark.report.gather import last_runs, told

        runs = last_runs(opened)
        place = _place(str(default_lake()) if lake is None else lake)
        batches = opened.pipeline.manifest.batches(place)
        now = opened.store.now()
    events = sum(batch.digest.rows for batch in batches)
    latest = max((batch.max_at for batch in batches if batch.max_at), default=None)
    failed = [run for run in runs if run.failed]
    several = len({run.lake for run in runs if run.lake is not None}) > 1
    cli.printer.listing(
        "tarry.pipeline.status/1",
        {"jobs": [data_of(run) for run in runs]},
        (*_RUNS, _LAKE) if several else _RUNS,
        [[*_row(run, told(run)), *([run.lake or ""] if several else [])] for run in runs],
        more={
            "lake": place,
            "archive": {"batches": len(batches), "events": events, "latest_event_at": exact(latest)},
            "ok": not failed,
        },
    )
    if not runs:
        cli.note("the pipeline has not run yet: tarry pipeline run")
    elif batches:
        age = "" if latest is None else f", the newest {roughly(now - latest)} old"
        cli.note(f"{plural(events, 'event')} in {plural(len(batches), 'batch', 'batches')} in {place}{age}")
    return ExitCode.CHECK_FAILED if failed else None


def _place(lake: str) -> str:
    """As the manifest writes it; without Spark, which the lake itself needs."""
    lake = lake.removeprefix("file://") if lake.startswith("file:///") else lake
    return lake.rstrip("/") if "://" in lake else str(Path(lake.removeprefix("file:")).expanduser().absolute())


def _row(run: PastRun, said: str) -> list[str | Cell]:
    took = "" if run.ended_at is None else roughly(max(run.ended_at - run.started_at, timedelta(0)))
    return [run.job, Cell(run.state, _STATES.get(run.state, "")), instant(run.started_at), took, said]
