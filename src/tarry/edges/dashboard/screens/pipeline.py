"""Pipeline: how fresh its results are, whether the archive is equal to the journal, the forecast, and all runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Any

from starlette.responses import Response

from tarry.core.analytics.manifest import PastRun
from tarry.core.analytics.port import AnalyticsQuery
from tarry.core.errors import InvalidInput
from tarry.core.security.api_keys import Action
from tarry.edges.dashboard import commands
from tarry.edges.dashboard.commands import Commands
from tarry.edges.dashboard.listing import Column, Listing, whole
from tarry.edges.dashboard.pipeline_runs import WINDOWED
from tarry.edges.dashboard.screen import PAGE_ROWS, Page, Screen, View
from tarry.wire.base import data_of

screen = Screen("pipeline", "Pipeline", "/pipeline", shortcut="l", icon="pipeline")
JOBS = ("archive", "facts", "metrics", "consumers", "anomalies", "forecast", "verify", "compact", "prune")
STALE_AFTER = timedelta(hours=1)
_ROWS = ("rows", "minutes", "hours", "ended", "anomalies", "events", "planned")
"""What a job has produced, by the name that its summary has for it."""
_HIDDEN = frozenset(
    (
        *("lake", "lock", "until", "batch", "ok", "seconds", "problems", "round", "seen_until", "calendar"),
        *("days", "changed"),
        *_ROWS,
    )
)
_TONES = {"done": "good", "running": "leased"}


@screen.page("/pipeline")
async def pipeline(view: View) -> Page:
    analytics, job = view.app.store.analytics, view.query.get("job") or None
    before = whole(view.query.get("after", ""))
    rows = await view.run(analytics.runs(job=job, before=before, limit=view.limit + 1))
    page = rows[: view.limit]
    last = await view.run(analytics.last_runs(JOBS))
    forecasts = await view.run(analytics.forecasts(AnalyticsQuery()))
    listing = Listing(
        columns=(
            Column("id", "Run", "code"),
            Column("job", "Job"),
            Column("state", "State", "state"),
            Column("started_at", "Started", "time"),
            Column("took_s", "Took", "duration", value=took, hide_small=True),
            Column("rows", "Rows", "number", value=lambda row: rows_of(row.summary), hide_small=True),
            Column("days", "Days", value=lambda row: days_of(row.summary), hide_small=True),
            Column("until", "Known until", "time", value=lambda row: known_until(row.summary), hide_small=True),
            Column("changed", "Changed", "number", value=lambda row: row.summary.get("changed"), hide_small=True),
            Column("result", "Result", value=lambda row: row.error or result_of(row.summary), hide_small=True),
            Column("lake", "Lake", "code", hide_small=True),
        ),
        rows=page,
        next=str(page[-1].id) if len(rows) > len(page) else None,
        name="runs",
    )
    return view.page(
        "analytics/pipeline.html",
        "Pipeline",
        topics=("clock",),
        listing=listing,
        shown=replace(listing, columns=[column for column in listing.columns if column.name != "lake"]),
        last=last,
        jobs=JOBS,
        job=job,
        verify=next((run for run in last if run.job == "verify"), None),
        lakes=await view.run(analytics.lake_days(limit=60)),
        forecasts=[row for row in forecasts.rows if view.sees(row.queue)],
        forecast_run=forecasts.run,
        stale_after=STALE_AFTER,
        took=took,
        rows_of=rows_of,
        result_of=result_of,
        days_of=days_of,
        known_until=known_until,
        tone_of=tone_of,
        commands=Commands(
            curl=commands.curl(view.api("metrics", "forecasts")),
            cli=commands.cli("pipeline", "status"),
            python=commands.python(
                "for run in app.pipeline.manifest.last_runs(['archive', 'metrics']):", "    print(run.job, run.state)"
            ),
        ),
        first=Commands(cli=commands.cli("pipeline", "run", "--every", "1m")),
        check=Commands(cli=commands.cli("verify")),
        again=None if job not in JOBS else Commands(cli=_command(job, page)),
        why_not=None if job not in JOBS else view.dashboard.pipeline_runs.why_not(job, _lake(page)),
        is_windowed=job in WINDOWED,
        running=view.dashboard.pipeline_runs.job,
    )


@screen.form("/pipeline/rerun", Action.ADMIN, "run a job of the pipeline", all_queues=True)
async def rerun(view: View) -> Response:
    """With the lake of its last run: it takes the window since then."""
    job = view.form.get("job", "")
    if job not in JOBS:
        raise InvalidInput(f"job must be one of {', '.join(JOBS)}")
    runs = await view.run(view.app.store.analytics.runs(job=job, before=None, limit=PAGE_ROWS))
    await view.dashboard.pipeline_runs.start(job, _lake(runs), _days(view, job))
    return view.done(f"{job} has started: its run is listed in a few seconds", f"/pipeline?job={job}")


def _days(view: View, job: str) -> tuple[date, date] | None:
    """The chosen window of a job that can repeat one."""
    since, until = (view.form.get(name, "").strip() for name in ("since", "until"))
    if job not in WINDOWED or not (since or until):
        return None
    try:
        first, last = date.fromisoformat(since or until), date.fromisoformat(until or since)
    except ValueError:
        raise InvalidInput("the days must be dates, such as 2026-12-25") from None
    if last < first:
        raise InvalidInput(f"the last day {last} is before the first one {first}")
    return first, last


def _lake(runs: Sequence[PastRun]) -> str | None:
    return next((run.lake for run in runs if run.lake), None)


def _command(job: str, runs: Sequence[PastRun]) -> str:
    """How the job is run again: by Spark, where the pipeline runs."""
    lake = _lake(runs)
    words = ["verify"] if job == "verify" else ["pipeline", job]
    return commands.cli(*words, *(("--lake", lake) if lake else ()))


def tone_of(run: PastRun) -> str:
    return _TONES.get(run.state, "critical")


def took(run: PastRun) -> timedelta | None:
    return None if run.ended_at is None else run.ended_at - run.started_at


def rows_of(summary: Mapping[str, Any]) -> int | None:
    return next((summary[name] for name in _ROWS if isinstance(summary.get(name), int)), None)


def days_of(summary: Mapping[str, Any]) -> str | None:
    """The window of a run: the days whose results it has published."""
    days = summary.get("days")
    if not isinstance(days, (list, tuple)) or not days:
        return None
    first, last = str(data_of(days[0])), str(data_of(days[-1]))  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType, reportUnknownVariableType]
    return first if first == last else f"{first} to {last}"


def known_until(summary: Mapping[str, Any]) -> datetime | None:
    """The watermark: the newest event that the run has seen. What is committed later is part of a later run."""
    at = summary.get("seen_until") or summary.get("until")
    return datetime.fromisoformat(at) if isinstance(at, str) else None


def result_of(summary: Mapping[str, Any]) -> str:
    """The other numbers of a summary, and the days of its window, in a few words."""
    words = [
        _word(name, value)
        for name, value in summary.items()
        if name not in _HIDDEN and value not in (None, "", [], {}, 0)
    ]
    return ", ".join(word for word in words if word)[:200]


def _word(name: str, value: Any) -> str:
    label = name.replace("_", " ")
    if isinstance(value, bool):
        return label if value else ""
    if isinstance(value, (list, tuple)):
        items: list[str] = [str(data_of(item)) for item in value]  # pyright: ignore[reportUnknownVariableType]
        return f"{label} {items[0]} to {items[-1]}" if len(items) > 1 else f"{label} {items[0]}"
    if isinstance(value, dict):
        return ""
    return f"{label} {value:,}" if isinstance(value, int) else f"{label} {value}"
