"""Anomalies: the inbox, and the page that explains one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec
from starlette.responses import Response

from tarry.core.analytics.anomalies import Anomaly, Band, Severity
from tarry.core.analytics.metrics import MetricMinute
from tarry.core.analytics.port import AnalyticsQuery
from tarry.core.dead_letters.fingerprints import pattern
from tarry.core.durations import duration
from tarry.core.errors import InvalidInput, UnknownQueue
from tarry.core.journal.events import EventKind
from tarry.core.rollups.model import CONSUMER_WIDTHS, WIDTHS, RollupWindow
from tarry.core.security.api_keys import Action
from tarry.edges.dashboard import commands
from tarry.edges.dashboard.commands import Commands, path
from tarry.edges.dashboard.listing import Column, Listing, whole
from tarry.edges.dashboard.narrower import filtered_by_queue
from tarry.edges.dashboard.ranges import floor
from tarry.edges.dashboard.screen import Page, Screen, View
from tarry.edges.http.problems import Problem

screen = Screen("anomalies", "Anomalies", "/anomalies", shortcut="a", icon="anomalies")
ACTIVE_FOR = timedelta(minutes=10)
"""An anomaly is active if it lasted until this long before the pipeline last looked."""
_MINUTE = timedelta(minutes=1)
_BEFORE, _AFTER = timedelta(minutes=60), timedelta(minutes=20)
_MOST_POINTS = 600
_EVENTS = 2_000
_LEAST_LIFT = 1.2
"""Values that are hardly more common than before explain nothing."""
_LISTED_FOR = timedelta(days=30)
_METRICS = {
    "unusual_offers": "offered",
    "unusual_acks": "acked",
    "unusual_failures": "failed",
    "slow_processing": "processing",
    "late_delivery": "lag",
}
"""The metric that a detector judges; the others judge single messages."""
_FAILURES = (EventKind.NACKED, EventKind.EXPIRED, EventKind.BURIED)


class Factor(NamedTuple):
    """A value that is more common in the window of an anomaly than in the hour before."""

    kind: str
    value: str
    events: int
    share: float
    lift: float | None
    """How much more common. None: it did not occur before."""
    is_new: bool
    """Others of its kind occurred before."""


@screen.page("/anomalies", narrower=filtered_by_queue)
async def anomalies(view: View) -> Page:
    analytics, query = view.app.store.analytics, view.query
    severity, state = query.get("severity") or None, query.get("state", "open")
    if severity is not None and severity not in list(Severity):
        raise InvalidInput(f"severity must be one of {', '.join(Severity)}, not {severity!r:.40}")
    selection = AnalyticsQuery(
        queue=query.get("queue") or None,
        patterns=_patterns(view),
        since=view.now - _LISTED_FOR,
        after=query.get("after"),
        limit=view.limit,
    )
    page = await view.run(
        analytics.anomalies(
            selection,
            detector=query.get("detector") or None,
            severity=None if severity is None else Severity(severity),
            acknowledged={"open": False, "acknowledged": True}.get(state),
        )
    )
    ended_at = None if page.run is None else page.run.ended_at

    def active(row: Anomaly) -> bool:
        return is_active(row, ended_at)

    listing = Listing(
        columns=(
            Column("severity", "Severity", "state", value=lambda row: row.severity.value),
            Column("id", "Id", "code"),
            Column("detector", "Kind"),
            Column("queue", "Queue"),
            Column("consumer", "Consumer"),
            Column("key", "Key"),
            Column("sentence", "Explanation"),
            Column("window_from", "Since", "time"),
            Column("window_to", "Until", "time"),
            Column("is_active", "Active", value=active),
            Column("score", "Score", "number"),
            Column("acknowledged_at", "Acknowledged", "time"),
            Column("is_false_positive", "False positive"),
        ),
        rows=[row for row in page.rows if view.sees(row.queue)],
        next=page.next,
        name="anomalies",
    )
    filters = {name: query.get(name, "") for name in ("queue", "severity", "detector")}
    return view.page(
        "analytics/anomalies.html",
        "Anomalies",
        topics=("clock",),
        listing=listing,
        run=page.run,
        mutes=[mute for mute in await view.run(analytics.mutes()) if mute.queue is None or view.sees(mute.queue)],
        state=state,
        filters=filters,
        severities=[severity.value for severity in reversed(Severity)],
        is_active=active,
        groups=grouped(listing.rows),
        commands=Commands(
            curl=commands.curl(view.api("anomalies"), query={k: v for k, v in filters.items() if v}),
            cli=commands.cli("anomaly", "list", "--last", "30d"),
            python=commands.python(
                "for anomaly in app.pipeline.anomalies.list():", "    print(anomaly.severity, anomaly.sentence)"
            ),
        ),
        first=Commands(cli=commands.cli("pipeline", "run")),
    )


@screen.page("/anomalies/{id}")
async def anomaly(view: View) -> Page:
    shown = await _anomaly(view, Action.READ)
    await view.dashboard.roll_ups.fresh()
    page = await view.run(view.app.store.analytics.anomalies(AnalyticsQuery(limit=1)))
    metric = _METRICS.get(shown.detector)
    return view.page(
        "analytics/anomaly.html",
        f"Anomaly {shown.id}",
        anomaly=shown,
        is_active=is_active(shown, None if page.run is None else page.run.ended_at),
        metric=metric,
        chart=await _chart(view, shown, metric),
        factors=await _factors(view, shown),
        messages=messages_query(shown),
        commands=Commands(
            curl=commands.curl(view.api("anomalies"), query={"queue": shown.queue}),
            cli=commands.cli("anomaly", "list", "--queue", shown.queue, "--all"),
        ),
        mark=Commands(
            curl=commands.curl(view.api("anomalies", str(shown.id), "ack"), "POST", {"is_false_positive": True}),
            cli=commands.cli("anomaly", "ack", str(shown.id), "--false-positive"),
        ),
        ack=Commands(
            curl=commands.curl(view.api("anomalies", str(shown.id), "ack"), "POST", {"note": "seen"}),
            cli=commands.cli("anomaly", "ack", str(shown.id)),
        ),
        mute=_mute_commands(view, shown),
    )


def _mute_commands(view: View, shown: Anomaly) -> Commands:
    body = {"detector": shown.detector, "queue": shown.queue, "mute_for": "2h", "reason": "load test"}
    words = ("--detector", shown.detector, "--queue", shown.queue, "--for", "2h", "--reason", "load test")
    return Commands(curl=commands.curl(view.api("mutes"), "POST", body), cli=commands.cli("anomaly", "mute", *words))


@screen.form("/anomalies/{id}/ack", Action.ADMIN, "acknowledge an anomaly")
async def acknowledge(view: View) -> Response:
    marked = await _anomaly(view, Action.ADMIN)
    key = view.visitor.caller.key
    name = view.visitor.id if key is None else key.name
    note = view.form.get("note", "").strip()[:1_000] or None
    is_false = view.form.get("false_positive") == "1"
    analytics = view.app.store.analytics
    await view.run(analytics.acknowledge(marked.id, by=name, note=note, is_false_positive=is_false))
    word = "a false positive: similar ones are not raised for 90 days" if is_false else "acknowledged"
    return view.done(f"Anomaly {marked.id} is {word}", path("anomalies", str(marked.id)))


@screen.form("/mutes", Action.ADMIN, "mute anomalies")
async def mute(view: View) -> Response:
    detector, queue = view.form.get("detector") or None, view.form.get("queue") or None
    view.visitor.require(Action.ADMIN, queue)
    if detector is None and queue is None:
        raise InvalidInput("choose a detector, a queue or both")
    lasting = view.form.get("for", "").strip()
    until = view.now + duration(lasting, "for") if lasting else None
    reason = view.form.get("reason", "").strip()[:1_000]
    await view.run(view.app.store.analytics.mute(detector=detector, queue=queue, until=until, reason=reason))
    return view.done(
        f"{detector or 'All detectors'} of {queue or 'all queues'} is muted from the next run on", "/anomalies"
    )


@screen.form("/mutes/{id}/end", Action.ADMIN, "end a mute")
async def unmute(view: View) -> Response:
    analytics, number = view.app.store.analytics, view.path["id"]
    muted = next((row for row in await view.run(analytics.mutes()) if str(row.id) == number), None)
    is_permitted = muted is not None and view.visitor.permits(Action.ADMIN, muted.queue)
    if muted is None or not is_permitted or not await view.run(analytics.unmute(muted.id)):
        raise Problem(404, "unknown_mute", "there is no mute of this id", hint="see the list of anomalies")
    return view.done("The mute is ended: the next run raises again what it finds", "/anomalies")


def grouped(rows: Sequence[Anomaly]) -> list[list[Anomaly]]:
    """Anomalies of one queue that differ only in particulars, in the order of the first of each group. An outage that buries
    fifty messages with one error is one entry of a list, not fifty.
    """
    groups: dict[tuple[object, ...], list[Anomaly]] = {}
    for row in rows:
        if row.key is None:
            alike: tuple[object, ...] = (row.id,)
        else:
            first_sentence = row.sentence.replace(row.key, "<key>").partition(". There were ")[0].rstrip(".")
            alike = (row.detector, row.queue, row.severity, row.acknowledged_at is None, pattern(first_sentence))
        groups.setdefault(alike, []).append(row)
    return list(groups.values())


def related(view: View, queue: str, keys: Collection[str] = ()) -> list[list[Anomaly]]:
    """Open anomalies of a queue, as far as they concern all of it or these keys. They were read with the numbers of the
    navigation, so they cost nothing."""
    rows = view.dashboard.badges.anomalies(view.sees)
    return grouped([row for row in rows if row.queue == queue and (not keys or row.key in (None, *keys))])


def is_active(anomaly: Anomaly, ended_at: datetime | None) -> bool:
    """Whether it lasted until shortly before the pipeline last looked."""
    return ended_at is not None and anomaly.window_to >= ended_at - ACTIVE_FOR


def messages_query(anomaly: Anomaly) -> str:
    """The search for the messages of an anomaly."""
    terms = [("queue", anomaly.queue), ("key", anomaly.key), ("consumer", anomaly.consumer)]
    text = " ".join(f"{name}:{_quoted(value)}" for name, value in terms if value)
    if anomaly.key is None:
        since, until = (f"{at:%Y-%m-%dT%H:%M:%SZ}" for at in (anomaly.window_from - _BEFORE, anomaly.window_to))
        text += f" created:>={since} created:<{until}"
    return text


def _quoted(value: str) -> str:
    return msgspec.json.encode(value).decode() if set(value) & set(' "\\*:') else value


async def _anomaly(view: View, action: Action) -> Anomaly:
    """One of another queue than the visitor's is treated as missing."""
    number = whole(view.path["id"])
    known = None if number is None else await view.run(view.app.store.analytics.anomaly(number))
    if known is None or not view.visitor.permits(action, known.queue):
        raise Problem(404, "unknown_anomaly", "there is no anomaly of this id", hint="see the list of anomalies")
    return known


def _patterns(view: View) -> Sequence[str] | None:
    key = view.visitor.caller.key
    return None if key is None else key.queues


async def _chart(view: View, anomaly: Anomaly, metric: str | None) -> dict[str, Any] | None:
    """Minutes around the window: the value with what is usual, or what happened in the queue. None: the pipeline has none."""
    since = floor(anomaly.window_from, _MINUTE) - _BEFORE
    until = min(floor(anomaly.window_to, _MINUTE) + _AFTER, since + _MOST_POINTS * _MINUTE)
    analytics = view.app.store.analytics
    try:
        query = AnalyticsQuery(queue=anomaly.queue, since=since, until=until, limit=_MOST_POINTS)
        page = await view.run(analytics.minutes(query))
        rows = {row.minute: row for row in page.rows}
        bands = (
            {band.hour_of_week: band for band in await view.run(analytics.bands(anomaly.queue, metric))}
            if metric
            else {}
        )
    except UnknownQueue:
        return None
    if not rows:
        return None
    known_until = max(*rows, since + _MINUTE) + _MINUTE  # what is later is not 0, but unknown
    starts = [since + at * _MINUTE for at in range(int((min(until, known_until) - since) / _MINUTE))]
    if metric is None:
        kinds = (("leased", "leased"), ("acked", "done"), ("failed", "dead"))
        series = [(name, tone, [_value(rows.get(at), name) for at in starts]) for name, tone in kinds]
        return {"starts": starts, "series": series, "unit": "count", "title": "Messages per minute", "run": page.run}
    values = [_value(rows.get(at), metric) for at in starts]
    inside = [
        value if anomaly.window_from - _MINUTE < at < anomaly.window_to else None
        for at, value in zip(starts, values, strict=True)
    ]
    usual = [_band(bands, at) for at in starts]
    series = [(metric, "accent", values), ("anomaly", "dead", inside)]
    if any(usual):
        series += [("usual, at least", "paused", [None if band is None else max(0.0, band.low) for band in usual])]
        series += [("usual, at most", "paused", [None if band is None else band.high for band in usual])]
    elif anomaly.expected_high is not None:
        series += [("usual, at most", "paused", [anomaly.expected_high] * len(starts))]
    unit = "seconds" if metric in ("processing", "lag") else "count"
    return {"starts": starts, "series": series, "unit": unit, "title": _TITLES[metric], "run": page.run}


_TITLES = {
    "offered": "Messages offered per minute",
    "acked": "Messages acked per minute",
    "failed": "Failed attempts per minute",
    "processing": "Processing time, p95",
    "lag": "Delivery lag, p95",
}


def _value(row: MetricMinute | None, metric: str) -> float | None:
    if metric in ("processing", "lag"):
        quantiles = None if row is None else getattr(row, metric)
        return None if quantiles is None else quantiles.p95
    if row is None:
        return 0
    return {
        "offered": row.offered + row.updated,
        "leased": row.leased,
        "acked": row.acked,
        "failed": row.nacked + row.expired,
    }[metric]


def _band(bands: dict[int, Band], at: datetime) -> Band | None:
    return bands.get(at.weekday() * 24 + at.hour)


async def _factors(view: View, anomaly: Anomaly) -> list[Factor] | None:
    """Consumers and errors that are more common than before. None: nothing of the window is known any more."""
    inside = await _counted(view, anomaly, anomaly.window_from, anomaly.window_to + _MINUTE)
    if not inside:
        return None
    before = await _counted(view, anomaly, anomaly.window_from - _BEFORE, anomaly.window_from)
    totals = {kind: sum(n for (of, _), n in inside.items() if of == kind) for kind, _ in inside}
    earlier = {kind: sum(n for (of, _), n in before.items() if of == kind) for kind in totals}
    factors: list[Factor] = []
    for (kind, value), count in inside.items():
        share, usual = count / totals[kind], before[kind, value] / (earlier[kind] or 1)
        is_new, lift = bool(earlier[kind]) and not usual, share / usual if usual else None
        if lift is None or lift >= _LEAST_LIFT:
            factors.append(Factor(kind, value, count, share, lift, is_new))
    return sorted(factors, key=lambda each: (not each.is_new, -(each.lift or 0), -each.events))[:8]


async def _counted(view: View, anomaly: Anomaly, since: datetime, until: datetime) -> Counter[tuple[str, str]]:
    """Attempts of consumers from the rollups, and errors from a bounded part of the journal, if the rollups have any."""
    counts: Counter[tuple[str, str]] = Counter()
    width = next((width for width in CONSUMER_WIDTHS if since > view.now - WIDTHS[width] + width), CONSUMER_WIDTHS[-1])
    window = RollupWindow(width, floor(since, width), until, anomaly.queue)
    rollups = view.app.store.rollups
    for row in await view.run(rollups.consumers(window)):
        if row.leased:
            counts["consumer", row.consumer] += row.leased
    if any(row.nacked + row.expired + row.buried for row in await view.run(rollups.slices(window))):
        query = AnalyticsQuery(queue=anomaly.queue, since=since, until=until, limit=_EVENTS)
        for event in (await view.run(view.app.store.analytics.events(query, kinds=_FAILURES))).rows:
            error = pattern(event.error) or event.kind.value
            counts["error", view.redaction.text(error)[:200]] += 1
    return counts
