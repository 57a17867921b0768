"""Reads the data of a report from the database. A job that has never run becomes a note, not an error."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from tarry.core.pipeline import PastRun
from tarry.edges.spark.report.values import Report, floored, future_axis, past_axis, report_of

if TYPE_CHECKING:
    from tarry.app import App

JOBS = ("archive", "facts", "metrics", "consumers", "anomalies", "forecast", "compact", "prune", "replay", "verify")
# State for the next run, or values that the report shows elsewhere.
_UNSAID = frozenset({"lake", "seconds", "batch", "alone_at"})


def gathered(app: App, *, queue: str | None, since: datetime, until: datetime) -> Report:
    from tarry.edges.spark.report.findings import findings_of

    serving = app.pipeline.serving
    runs = last_runs(app)
    ran = any(run.job == "metrics" for run in runs)
    notes = [] if ran else ["The pipeline has not run yet: tarry pipeline run"]
    failed = sorted({run.job for run in runs if run.failed}, key=JOBS.index)
    notes += [f"What {job} finds is as old as before its last run, which failed." for job in failed]
    # The database aggregates: first over the whole range, then over spans that fit into a chart.
    totals = serving.metric_spans(queue, since, until, None)
    ahead = serving.forecast_spans(queue, None)
    past, future = past_axis(totals, since, until), future_axis(ahead, until)
    return report_of(
        metrics=serving.metric_spans(queue, since, until, past.step),
        totals=totals,
        # By the hour: include the hour that contains `since`.
        consumers=serving.consumers(queue, floored(since, timedelta(hours=1)), until, limit=None),
        forecasts=serving.forecasts(queue),
        planned=serving.forecast_spans(queue, future.step),
        findings=findings_of(app, queue=queue, since=since, until=until),
        runs=runs,
        past=past,
        future=future,
        since=since,
        until=until,
        made_at=app.store.now(),
        notes=notes,
    )


def last_runs(app: App) -> list[PastRun]:
    """The last run of each job on each lake, successful or not, in the order of dependencies."""
    return app.pipeline.manifest.last_runs(JOBS)


def told(run: PastRun) -> str:
    """The summary of a run in one line."""
    if run.error:
        return run.error
    said = run.summary.get("line")
    if isinstance(said, str):
        return said
    plain = ((name, value) for name, value in run.summary.items() if name not in _UNSAID)
    return ", ".join(f"{name} {_shown(value)}" for name, value in plain if isinstance(value, (str, int, float)))


def _shown(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:,.4g}" if isinstance(value, float) else f"{value:,}"
