"""The overview: is anything late, failing or unconsumed?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from starlette.responses import Response

from tarry.core.analytics.anomalies import Severity
from tarry.core.errors import InvalidInput
from tarry.core.journal.events import Event, EventKind
from tarry.core.messages.model import Counted
from tarry.core.rollups.health import JUDGED_FOR, Concern, Finding, Lag
from tarry.core.rollups.model import Measure, RollupWindow, summed
from tarry.core.security.api_keys import Action
from tarry.core.settings import QueueInfo
from tarry.edges.dashboard import charts, commands
from tarry.edges.dashboard.commands import Commands, path
from tarry.edges.dashboard.narrower import shorter_or_one_queue
from tarry.edges.dashboard.ranges import TimeRange, floor
from tarry.edges.dashboard.remembered import MARK
from tarry.edges.dashboard.screen import Page, Screen, View
from tarry.edges.dashboard.screens.anomalies import grouped
from tarry.edges.dashboard.screens.calendar import TicksAhead, ticks_ahead
from tarry.edges.dashboard.screens.dead import group_path
from tarry.edges.dashboard.screens.queue_lists import queue_listing, state_of
from tarry.edges.formats import roughly
from tarry.services.overview import QueueRow, TimeSeries, queue_rows, time_series

screen = Screen("overview", "Overview", "/", shortcut="o", icon="overview")
_MINUTE = timedelta(minutes=1)
_ROWS = 30
"""Queues in the table."""
_FINDINGS = 6
"""Problems that the verdict lists."""
_MARKS = 8
_MARK_LENGTH = 80
_SEVERITIES = ("critical", "warning", "info", "paused", "good")
_DEATHS_S = 5.0
"""How long the groups of new dead letters are remembered."""
_TICKS_S = 10.0
"""How long the ticks of the next hour are remembered: they follow from the schedules."""


@screen.page("/", narrower=shorter_or_one_queue)
async def overview(view: View) -> Page:
    store = view.app.store
    await view.dashboard.roll_ups.fresh()
    rows = await queue_rows(store, view.now, view.sees)
    chosen, names = view.range, await view.queues()
    series = await time_series(store, chosen.starts, chosen.width, rows, names, until=view.now)
    findings = sorted((f for row in rows for f in row.health.findings), key=lambda f: (f.severity, f.concern, f.queue))
    # All of them by name, or the worst.
    shown = rows if len(rows) <= _ROWS else sorted(rows, key=lambda row: (_SEVERITIES.index(state_of(row)), row.name))
    listing = queue_listing(shown[:_ROWS])
    return view.page(
        "overview.html",
        "Overview",
        topics=("queues", "messages", "clock"),
        listing=listing,
        rows=rows,
        findings=await linked(view, findings[:_FINDINGS]),
        more_findings=len(findings[_FINDINGS:]),
        tone=_tone(findings),
        verdict=_verdict(findings, rows),
        series=series,
        rates=rates(series, chosen),
        lag=_latest(series.lags),
        totals=_totals(rows),
        sentences=sentences(series, chosen, await lag_before(view, names)),
        marks=marks(
            view,
            [row.health.info for row in rows],
            past_pauses([event for event in view.dashboard.badges.pauses if view.sees(event.queue)]),
        ),
        strip=await next_hour(view),
        deploy=Commands(curl=commands.form(view.form_url("deploys"), {"text": "shop 1.4.2"})),
        commands=Commands(
            curl=commands.curl(view.api("queues")),
            cli=commands.cli("queue", "list"),
            python=commands.python(
                "for queue in app.queues.list():", "    print(queue.name, app.queues.counts(queue.name))"
            ),
        ),
        first=Commands(
            curl=commands.curl(
                view.api("queues", "hello", "messages"), "POST", {"payload": {"hi": "there"}, "after": "10s"}
            ),
            cli=commands.cli("offer", "hello", '{"hi": "there"}', "--after", "10s"),
            python=commands.python('app.queue("hello").offer("first", {"hi": "there"}, after=timedelta(seconds=10))'),
        ),
    )


async def next_hour(view: View, queue: str | None = None) -> dict[str, object]:
    """What comes due in each of the next sixty minutes: messages, and ticks that are no messages yet."""
    store, since = view.app.store, floor(view.now, _MINUTE)
    until = since + 60 * _MINUTE
    counts: Counter[datetime] = Counter()
    ticks: Counter[datetime] = Counter()
    for due in await view.run(store.rollups.due_ahead(since, until, _MINUTE, queue=queue)):
        if view.sees(due.queue):
            counts[due.start_at] += due.messages
    ahead = await view.dashboard.remembered.get(("ticks", since), _TICKS_S, lambda: _ticks(view, since, until))
    for (name, at), count in ahead.ticks.items():
        if view.sees(name) and queue in (None, name):
            ticks[at] += count
    minutes = [since + at * _MINUTE for at in range(60)]
    values = {(at, 0): float(counts[minute] + ticks[minute]) for at, minute in enumerate(minutes)}
    titles = {
        (at, 0): f"{minute:%H:%M} UTC: {counts[minute]:,} messages, {ticks[minute]:,} ticks of schedules"
        for at, minute in enumerate(minutes)
    }
    return {
        "cells": charts.cells(values, titles),
        "labels": [(at, f"{minutes[at]:%H:%M}") for at in range(0, 60, 10)],
        "messages": sum(counts.values()),
        "ticks": sum(ticks.values()),
    }


async def _ticks(view: View, since: datetime, until: datetime) -> TicksAhead:
    return await ticks_ahead(view, await view.app.schedules.list(), since, until, _MINUTE)


@screen.form("/deploys", Action.ADMIN, MARK, all_queues=True)
async def mark_deploy(view: View) -> Response:
    """Its row in the audit is the mark: charts of all visitors show it."""
    text = view.form.get("text", "").strip()
    if not 0 < len(text) <= _MARK_LENGTH:
        raise InvalidInput(f"text: what was deployed, in 1 to {_MARK_LENGTH} characters")
    await view.dashboard.badges.read_deploys()
    return view.done(f"{text} is marked in the charts", "/")


class ChartMark(NamedTuple):
    """What charts show beside their values: an anomaly, a paused queue, or a deploy."""

    since: datetime
    until: datetime
    tone: str
    text: str
    path: str | None = None


def marks(view: View, infos: Sequence[QueueInfo], more: Sequence[ChartMark] = ()) -> list[ChartMark]:
    """Of the chosen time and these queues, the newest first: from what the page has read anyway."""
    names, marked = {info.name for info in infos}, list[ChartMark](more)
    for alike in grouped([row for row in view.dashboard.badges.anomalies(view.sees) if row.queue in names]):
        text = f"{alike[0].detector.replace('_', ' ')} of {alike[0].queue}" + (f", {len(alike)}" if alike[1:] else "")
        since, until = min(row.window_from for row in alike), max(row.window_to for row in alike)
        marked.append(ChartMark(since, until, "dead", text, path("anomalies", str(alike[0].id))))
    for info in infos:
        if info.paused_at is not None:
            marked.append(
                ChartMark(info.paused_at, view.now, "paused", f"{info.name} is paused", path("queues", info.name))
            )
    for row in view.dashboard.badges.deploys:
        form: Mapping[str, str] = (row.detail or {}).get("form") or {}
        marked.append(ChartMark(row.at, row.at, "delayed", view.redaction.text(form.get("text", ""))))
    shown = [mark for mark in marked if mark.until >= view.range.since and mark.since < view.range.until]
    return sorted(shown, key=lambda mark: mark.since, reverse=True)[:_MARKS]


def past_pauses(events: Sequence[Event]) -> list[ChartMark]:
    """Those that have ended. `events`: newest first."""
    pauses: list[ChartMark] = []
    resumed_at: dict[str, datetime] = {}
    for event in events:
        if event.kind is EventKind.QUEUE_RESUMED:
            resumed_at[event.queue] = event.at
        elif event.kind is EventKind.QUEUE_PAUSED and event.queue in resumed_at:
            until = resumed_at.pop(event.queue)
            pauses.append(
                ChartMark(event.at, until, "paused", f"{event.queue} was paused", path("queues", event.queue))
            )
    return pauses


def rates(series: TimeSeries, chosen: TimeRange) -> dict[str, list[float | None]]:
    """Per second, by what happened. A last point that is not complete has no rate."""
    seconds = chosen.width.total_seconds()
    whole, rest = (series.slices, []) if chosen.is_past else (series.slices[:-1], [None])
    return {
        **{name: [*(getattr(row, name) / seconds for row in whole), *rest] for name in ("offered", "leased", "acked")},
        "failed": [*((row.nacked + row.expired) / seconds for row in whole), *rest],
    }


class LinkedFinding(NamedTuple):
    finding: Finding
    sentence: str
    href: str


async def linked(view: View, findings: Sequence[Finding]) -> list[LinkedFinding]:
    """Each with the page that shows its cause; new dead letters also with how many of them have one error."""
    return [
        await _dead(view, finding)
        if finding.concern is Concern.DEAD
        else LinkedFinding(finding, finding.sentence, _cause(view, finding))
        for finding in findings
    ]


def _cause(view: View, finding: Finding) -> str:
    queue = finding.queue
    match finding.concern:
        case Concern.UNCONSUMED:
            return view.url("/consumers", queue=queue)
        case Concern.LATE if finding.severity is Severity.CRITICAL:
            return view.url("/messages", q=f"queue:{queue} state:ready")
        case Concern.FAILING:
            return view.url("/messages", q=f"queue:{queue} attempts:>0")
        case Concern.FULL:
            return view.url(path("queues", queue, "settings"))
        case _:
            return view.url(path("queues", queue))


async def _dead(view: View, finding: Finding) -> LinkedFinding:
    queue, rollups = finding.queue, view.app.store.rollups
    deaths = await view.dashboard.remembered.get(
        ("new deaths", queue),
        _DEATHS_S,
        lambda: view.run(rollups.deaths(queue, JUDGED_FOR, view.now - JUDGED_FOR, view.now)),
    )
    groups = {part.fingerprint: part.deaths for part in deaths if part.start_at is not None}
    largest = max(groups, key=lambda fingerprint: groups[fingerprint], default=None)
    total = sum(groups.values())
    if largest is None or total == 1 or groups[largest] * 2 < total:
        return LinkedFinding(finding, finding.sentence, view.url("/dead", queue=queue))
    share = "all" if groups[largest] == total else f"{groups[largest] / total:.0%}"
    return LinkedFinding(finding, f"{finding.sentence}, {share} with one error", view.url(group_path(queue, largest)))


def _tone(findings: list[Finding]) -> str:
    return "good" if not findings else min(finding.severity.value for finding in findings)


def _verdict(findings: list[Finding], rows: list[QueueRow]) -> str:
    if not rows:
        return "No queues yet"
    if not findings:
        return "Healthy: nothing is late, failing or unconsumed"
    critical = sum(finding.severity is Severity.CRITICAL for finding in findings)
    count = len(findings)
    problems = f"{count} problem{'' if count == 1 else 's'}"
    return f"{problems}, {critical} critical" if critical and critical < count else problems


def _latest(lags: Sequence[Lag]) -> Lag:
    return next((lag for lag in reversed(lags) if lag.p50 is not None), Lag(None, None, None))


def _totals(rows: list[QueueRow]) -> dict[str, object]:
    health = [row.health for row in rows]
    oldest = max((h.standing.counts.lag_for for h in health), default=timedelta(0))
    counted = [
        {name: getattr(h.standing.counts, name) for name in ("delayed", "ready", "leased")} | {"dead": h.standing.dead}
        for h in health
    ]
    states = {
        name: Counted(sum(of[name].n for of in counted), any(of[name].capped for of in counted))
        for name in ("delayed", "ready", "leased", "dead")
    }
    return {
        "offered_per_s": sum(h.offered_per_s for h in health),
        "acked_per_s": sum(h.acked_per_s for h in health),
        "oldest": oldest,
        "late": any(h.standing.counts.lag_for > h.info.settings.target_lag_for for h in health),
        "states": states,
        "consumers": sum(h.consumers for h in health),
        "buried": sum(h.buried for h in health),
    }


async def lag_before(view: View, names: Sequence[str]) -> Lag:
    """Of the same length of time before the chosen range."""
    chosen = view.range
    window = RollupWindow(chosen.width, chosen.since - (chosen.until - chosen.since), chosen.since)
    return Lag.of(summed(await view.run(view.app.store.rollups.times(Measure.LAG, window, whole=True, sum_of=names))))


def sentences(series: TimeSeries, chosen: TimeRange, before: Lag) -> dict[str, str]:
    """Each chart in one sentence, for readers that cannot see it."""
    offered, acked = sum(row.offered for row in series.slices), sum(row.acked for row in series.slices)
    failed = sum(row.nacked + row.expired for row in series.slices)
    points = [lag.p95 for lag in series.lags if lag.p95 is not None]
    whole, worst = Lag.of(summed(series.buckets)).p95, "no deliveries"
    if whole is not None:
        earlier = "" if before.p95 is None else f" ({roughly(timedelta(seconds=before.p95))} in the time before)"
        worst = f"p95 {roughly(timedelta(seconds=whole))}{earlier}, at worst {roughly(timedelta(seconds=max(points)))}"
    live = [value for value in series.live if value is not None]
    depth = f"{live[-1]:,} live, between {min(live):,} and {max(live):,}" if live else "not known: the journal is off"
    name = chosen.words.removeprefix("the ").capitalize() if chosen.words.startswith("the ") else chosen.words
    return {
        "rate": f"{name}: {offered:,} offered, {acked:,} acked, {failed:,} failed attempts",
        "lag": f"{name}: {worst}",
        "depth": f"{name}: {depth}",
    }
