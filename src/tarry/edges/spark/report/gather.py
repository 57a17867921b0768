"""Reads the data of a report from the database. A job that has never run becomes a note, not an error."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from tarry.app import App
from tarry.core.analytics.anomalies import Anomaly
from tarry.core.analytics.manifest import PastRun
from tarry.core.analytics.port import AnalyticsQuery
from tarry.core.durations import floored
from tarry.edges.spark.report.values import AnomalyLine, Report, future_axis, grouped, past_axis, report_of

JOBS = ("archive", "facts", "metrics", "consumers", "anomalies", "forecast", "compact", "prune", "replay", "verify")
# State for the next run, or values shown elsewhere in the report.
_HIDDEN = frozenset({"lake", "seconds", "round", "seen_until", "lock"})


def gathered(app: App, *, queue: str | None, since: datetime, until: datetime) -> Report:
    analytics, results, run = app.pipeline.analytics, app.store.analytics, app.store.run
    by_queue = AnalyticsQuery(queue=queue, limit=None)
    runs = last_runs(app)
    ran = any(run.job == "metrics" for run in runs)
    notes = [] if ran else ["The pipeline has not run yet: tarry pipeline run"]
    failed = sorted({run.job for run in runs if run.failed}, key=JOBS.index)
    notes += [f"The results of {job} are older than its last run, which failed." for job in failed]
    # The database aggregates: first over the whole range, then over spans that fit into a chart.
    totals = analytics.metric_spans(queue, since, until, None)
    ahead = analytics.forecast_spans(queue, None)
    past, future = past_axis(totals, since, until), future_axis(ahead, until)
    return report_of(
        metrics=analytics.metric_spans(queue, since, until, past.step),
        totals=totals,
        # By the hour: include the hour that contains `since`.
        consumers=run(results.hours(replace(by_queue, since=floored(since, timedelta(hours=1)), until=until))).rows,
        forecasts=run(results.forecasts(by_queue)).rows,
        planned=analytics.forecast_spans(queue, future.step),
        findings=findings_of(app.pipeline.anomalies.list(queue=queue, since=since, until=until, limit=None)),
        runs=runs,
        past=past,
        future=future,
        since=since,
        until=until,
        made_at=app.store.run(app.store.queues.now()),
        notes=notes,
    )


def last_runs(app: App) -> list[PastRun]:
    """The last run of each job on each lake, successful or not, in the order of dependencies."""
    return app.pipeline.manifest.last_runs(JOBS)


def summary_line(run: PastRun) -> str:
    """The summary of a run in one line."""
    if run.error:
        return run.error
    line = run.summary.get("line")
    if isinstance(line, str):
        return line
    plain = ((name, value) for name, value in run.summary.items() if name not in _HIDDEN)
    return ", ".join(f"{name} {_shown(value)}" for name, value in plain if isinstance(value, (str, int, float)))


def _shown(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:,.4g}" if isinstance(value, float) else f"{value:,}"


def findings_of(anomalies: Sequence[Anomaly]) -> list[AnomalyLine]:
    """Group anomalies by kind, since there may be hundreds. Acknowledged ones form their own groups."""

    def kind(anomaly: Anomaly) -> tuple[str, str, str, bool]:
        return anomaly.severity.value, anomaly.detector, anomaly.queue, anomaly.acknowledged_at is not None

    groups = grouped(anomalies, kind).values()
    return [AnomalyLine(max(group, key=lambda anomaly: anomaly.window_from), len(group)) for group in groups]
