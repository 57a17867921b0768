"""tarry pipeline report, status, abandon: results and state of the pipeline. None needs Spark."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tarry.core.extras import needs_extra
from tarry.edges.cli.context import CommandSession, command, now_of
from tarry.edges.cli.exit_codes import CommandFailed, ExitCode, NotFound, Usage
from tarry.edges.cli.help import argument, option
from tarry.edges.cli.options import Lake, OnlyQueue, Yes
from tarry.edges.cli.output.printer import EntityView, TableColumn, entity_view
from tarry.edges.formats import duration, exact, plural, roughly
from tarry.wire.base import data_of

if TYPE_CHECKING:
    from tarry.core.analytics.manifest import PastRun
    from tarry.edges.spark.report.values import Report


@command(
    "pipeline report",
    "tarry pipeline report",
    "tarry pipeline report --html report.html --last 7d",
    "tarry pipeline report --queue orders -o json",
)
def report(
    cli: CommandSession,
    html: Annotated[Path | None, option("--html FILE", "Write a page with plots, in one file.")] = None,
    last: Annotated[str, option("--last DURATION", "How far to look back.")] = "24h",
    queue: OnlyQueue = None,
) -> None:
    """Show the results of the pipeline.

    Throughput, lag, failures, consumers, anomalies and the forecast of the last run. Needs no Spark.
    """
    back = duration(last, "--last")
    if not back:
        raise Usage(f"--last must be positive, got {last}")
    with cli.open(queue) as app:
        from tarry.core.durations import floored
        from tarry.edges.spark.report.gather import gathered
        from tarry.edges.spark.report.terminal import print_report

        now = now_of(app)
        results = gathered(app, queue=queue, since=floored(now - back, timedelta(minutes=1)), until=now)
    if html is not None:
        write_html(results, html)
    if cli.printer.for_people:
        print_report(cli.printer, results)
        if html is not None:
            cli.note(f"wrote {html}")
    else:
        more = {"html": None if html is None else str(html)}
        cli.printer.record("tarry.pipeline.report/1", {**data_of(results), **more}, ())


def write_html(results: Report, path: Path) -> None:
    """Write the page to a temporary file and rename it: readers never see half a page."""
    with needs_extra("http", "the page"):
        from tarry.edges.spark.report.html import page
    temporary = path.with_name(f".{path.name}.new")
    try:
        temporary.write_text(page(results), encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise CommandFailed(f"the report cannot be written: {error}") from error


@command("pipeline status", "tarry pipeline status", "tarry pipeline status -o json")
def status(cli: CommandSession, lake: Lake = None) -> ExitCode | None:
    """Show the last run of each job, and what is archived.

    Changes nothing and needs no Spark. With several lakes, a job has a row for each. The exit code is 7 if the last run
    of a job failed, on any lake.
    """
    from tarry.app import default_lake

    with cli.open() as app:
        from tarry.edges.spark.report.gather import last_runs

        runs = last_runs(app)
        location = _location(str(default_lake()) if lake is None else lake)
        batches = app.pipeline.manifest.batches(location)
        now = now_of(app)
    events = sum(batch.digest.rows for batch in batches)
    latest = max((batch.max_at for batch in batches if batch.max_at), default=None)
    failed = [run for run in runs if run.failed]
    several = len({run.lake for run in runs if run.lake is not None}) > 1
    cli.listing(
        replace(_RUNS, columns=(*_RUNS.columns, TableColumn("lake"))) if several else _RUNS,
        runs,
        more={
            "lake": location,
            "archive": {"batches": len(batches), "events": events, "latest_event_at": exact(latest)},
            "ok": not failed,
        },
    )
    if not runs:
        cli.note("the pipeline has not run yet: tarry pipeline run")
    elif batches:
        age = "" if latest is None else f", the newest {roughly(now - latest)} old"
        cli.note(f"{plural(events, 'event')} in {plural(len(batches), 'batch', 'batches')} in {location}{age}")
    return ExitCode.CHECK_FAILED if failed else None


@command(
    "pipeline abandon", "tarry pipeline abandon /srv/lake", "tarry pipeline abandon s3a://lake/old --yes", audited=True
)
def abandon(
    cli: CommandSession,
    lake: Annotated[str, argument("LAKE", "Path or URI, as tarry doctor shows it.")],
    yes: Yes = False,
) -> None:
    """Forget a lake that is no longer used.

    Until then the journal keeps events that the lake has not archived. Its files stay, but no job reads them any more:
    archive to another location from now on. Refused while a job runs on it. Needs no Spark.
    """
    location = _location(lake)
    with cli.open() as app:
        cli.confirm(f"Forget the lake {location}?", yes=yes)
        if not app.pipeline.retention.abandon(location):
            raise NotFound(f"there is no lake {location}", hint="see: tarry pipeline status")
    cli.printer.record("tarry.pipeline.abandon/1", {"lake": location, "abandoned": True})


def _location(lake: str) -> str:
    """The location in the form of the manifest, computed without Spark."""
    lake = lake.removeprefix("file://") if lake.startswith("file:///") else lake
    return lake.rstrip("/") if "://" in lake else str(Path(lake.removeprefix("file:")).expanduser().absolute())


def _took(run: PastRun) -> str:
    return "" if run.ended_at is None else roughly(max(run.ended_at - run.started_at, timedelta(0)))


def _result(run: PastRun) -> str:
    from tarry.edges.spark.report.gather import summary_line

    return summary_line(run)


_RUNS: EntityView[PastRun] = entity_view(
    "tarry.pipeline.status/1",
    "jobs",
    TableColumn("job", style="bold"),
    TableColumn("state", style={"done": "green", "failed": "red", "lost": "red", "running": "yellow"}),
    TableColumn("last run", "started_at"),
    TableColumn("took", _took, right=True),
    TableColumn("result", _result),
)
