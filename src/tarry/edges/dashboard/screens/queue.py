"""One queue: its state, charts, settings, what comes next, and the actions on it."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from starlette.responses import Response

from tarry.api.drafts import fresh_key
from tarry.core import limits
from tarry.core.analytics.port import AnalyticsQuery
from tarry.core.errors import InvalidInput, UnknownQueue
from tarry.core.journal.events import Event, EventKind, JournalLevel
from tarry.core.messages.model import Filter
from tarry.core.messages.outcomes import Outcome
from tarry.core.messages.retry import Retry
from tarry.core.rollups.health import Lag
from tarry.core.rollups.model import Measure, RollupWindow, TimeBucket, summed, upper_s
from tarry.core.security.api_keys import Action
from tarry.core.settings import QueueInfo, QueueSettings
from tarry.edges.dashboard import charts, commands
from tarry.edges.dashboard.audits import paused_by
from tarry.edges.dashboard.commands import Commands, message_path, path
from tarry.edges.dashboard.listing import Column, Listing, whole
from tarry.edges.dashboard.narrower import shorter_ranges
from tarry.edges.dashboard.ranges import TimeRange
from tarry.edges.dashboard.rendering import size
from tarry.edges.dashboard.screen import Page, View
from tarry.edges.dashboard.screens.anomalies import related
from tarry.edges.dashboard.screens.overview import lag_before, linked, marks, next_hour, past_pauses, rates, sentences
from tarry.edges.dashboard.screens.queues import screen
from tarry.edges.formats import delay, duration, length, moment, roughly
from tarry.edges.http.problems import Problem
from tarry.services.overview import percentiles, queue_rows, time_series
from tarry.wire.payload import Content

_NEXT = 20
_DAY = timedelta(days=1)
_RETRIES = 12
_PER_ROW = 8
"""Buckets of rollups in one row of the heat map: two octaves."""
_ACTIVITY_S = 15.0
"""They are rare, so many other events are scanned for them."""
_NEWEST = 500
"""Events of messages that the distributions are of."""
_MESSAGE_EVENTS = (EventKind.OFFERED, EventKind.ACKED, EventKind.BURIED)
_QUEUE_EVENTS = [kind for kind in EventKind if kind.value.startswith("queue_")]
_DURATIONS = ("lease_for", "retention_for", "target_lag_for")
_LIMITS = ("max_attempts", "max_depth")
_LABELS = {
    "lease_for": "Lease", "max_attempts": "Attempts", "target_lag_for": "Target lag", "max_depth": "Most live messages",
    "retention_for": "Archive keeps", "retry_initial_for": "First retry after",
    "retry_factor": "Factor of each further retry", "retry_cap_for": "Longest wait for a retry",
    "retry_jitter": "Jitter of retries", "journal": "Journal", "description": "Description",
}  # fmt: skip
NEXT_COLUMNS = (
    Column("key", "Key", "code", href=lambda row: message_path(row.queue, row.key)),
    Column("state", "State", "state", value=lambda row: row.state.value),
    Column("due_at", "Due", "time"),
    Column("attempt", "Attempt", "number"),
    Column("priority", "Priority", "number", hide_small=True),
    Column("type", "Type", hide_small=True),
    Column("consumer", "Consumer", hide_small=True),
)


@screen.page("/queues/{queue}", narrower=shorter_ranges)
async def queue(view: View) -> Page:
    name, store = view.path["queue"], view.app.store
    await view.dashboard.roll_ups.fresh()
    rows = await queue_rows(store, view.now, view.sees, queue=name)
    if not rows:
        raise UnknownQueue(name)
    health = rows[0].health
    chosen = view.range
    series = await time_series(store, chosen.starts, chosen.width, rows, until=view.now)
    window = RollupWindow(chosen.width, chosen.since, chosen.until, name)
    work = await view.run(store.rollups.times(Measure.WORK, window))
    events = await view.dashboard.remembered.get(
        ("activity", name),
        _ACTIVITY_S,
        lambda: store.run(store.analytics.events(AnalyticsQuery(queue=name, limit=10), kinds=_QUEUE_EVENTS)),
    )
    newest = await view.dashboard.remembered.get(
        ("newest", name),
        _ACTIVITY_S,
        lambda: store.run(store.analytics.events(AnalyticsQuery(queue=name, limit=_NEWEST), kinds=_MESSAGE_EVENTS)),
    )
    return view.page(
        "queues/queue.html",
        name,
        topics=("queues", "messages", "clock"),
        name=name,
        health=health,
        info=health.info,
        findings=await linked(view, health.findings),
        paused_by=await paused_by(view, {name: health.info.paused_at} if health.info.paused_at else {}),
        counts=health.standing.counts,
        live=health.standing.live_total,
        series=series,
        rates=rates(series, chosen),
        sentences=sentences(series, chosen, await lag_before(view, [name])),
        marks=marks(view, [health.info], past_pauses(events.rows)),
        anomalies=related(view, name),
        lag=Lag.of(summed(series.buckets)),
        work=Lag.of(summed(work)),
        works=percentiles(work, chosen.starts),
        heat=heat(series.buckets, chosen),
        retries=retry_curve(health.info.settings),
        upcoming=await upcoming(view, name),
        strip=await next_hour(view, name),
        events=events.rows,
        attempts=attempts_of(newest.rows),
        sizes=sizes_of(newest.rows),
        fields=fields_of(health.info.settings),
        commands=_commands(view, name),
        actions=_actions(view, name),
    )


@screen.page("/queues/{queue}/next")
async def next_messages(view: View) -> Page:
    """What is delivered next, as a list of its own."""
    name = view.path["queue"]
    return view.page(
        "queues/queue_next.html",
        "Next",
        topics=("messages", "clock"),
        name=name,
        listing=await upcoming(view, name),
        commands=Commands(
            curl=commands.curl(view.api("queues", name, "messages")),
            cli=commands.cli("message", "list", name),
            python=commands.python(f"print(app.store.run(app.store.messages.list({name!r}, limit=20)))"),
        ),
    )


@screen.page("/queues/{queue}/settings", Action.READ)
async def settings(view: View) -> Page:
    """The settings as a form; with values in the query, what would change."""
    info = await view.app.queues.get(view.path["queue"])
    given = {name: value for name, value in view.query.items() if name in fields_of(info.settings)}
    changes = changed_settings(info, given) if given else {}
    after = fields_of(dataclasses.replace(info.settings, **changes))
    before = fields_of(info.settings)
    return view.page(
        "queues/queue_settings.html",
        f"Settings of {info.name}",
        name=info.name,
        fields=after,
        given=given,
        changes=[(name, before[name], after[name]) for name in after if before[name] != after[name]],
        labels=_LABELS,
        commands=_edit_commands(view, info.name, before, after),
        actions=_actions(view, info.name),
        is_preview=bool(given),
    )


@screen.form("/queues", Action.ADMIN, "create a queue")
async def create(view: View) -> Response:
    name = view.form.get("name", "").strip()
    view.visitor.require(Action.ADMIN, name)
    await view.app.queues.create(name)
    return view.done(f"{name} was created", path("queues", name))


@screen.form("/queues/{queue}/settings", Action.ADMIN, "edit a queue")
async def edit(view: View) -> Response:
    info = await view.app.queues.get(view.path["queue"])
    changes = changed_settings(info, view.form)
    if changes:
        await view.app.queues.edit(info.name, **changes)
    before, after = fields_of(info.settings), fields_of(dataclasses.replace(info.settings, **changes))
    changed = ", ".join(
        f"{name} from {before[name] or 'none'} to {after[name] or 'none'}"
        for name in after
        if before[name] != after[name]
    )
    return view.done(
        f"{info.name}: {f'changed {changed}' if changed else 'nothing changed'}", path("queues", info.name)
    )


@screen.form("/queues/{queue}/pause", Action.ADMIN, "pause a queue")
async def pause(view: View) -> Response:
    info = await view.app.queues.pause(view.path["queue"], reason=view.form.get("reason", "").strip() or None)
    return view.done(f"{info.name} is paused: nothing is delivered", path("queues", info.name))


@screen.form("/queues/{queue}/resume", Action.ADMIN, "resume a queue")
async def resume(view: View) -> Response:
    info = await view.app.queues.resume(view.path["queue"])
    return view.done(f"{info.name} delivers again", path("queues", info.name))


@screen.form("/queues/{queue}/purge", Action.ADMIN, "purge a queue")
async def purge(view: View) -> Response:
    name = _confirmed(view)
    await view.app.queues.get(name)
    purged = await view.run(view.app.store.messages.purge(name))
    return view.done(f"{purged:,} messages of {name} were removed; dead letters stay", path("queues", name))


@screen.form("/queues/{queue}/rename", Action.ADMIN, "rename a queue")
async def rename(view: View) -> Response:
    name, new_name = view.path["queue"], view.form.get("new_name", "").strip()
    view.visitor.require(Action.ADMIN, new_name)
    info = await view.app.queues.rename(name, new_name)
    return view.done(f"{name} is now {info.name}", path("queues", info.name))


@screen.form("/queues/{queue}/delete", Action.ADMIN, "delete a queue")
async def delete(view: View) -> Response:
    name = _confirmed(view)
    await view.app.queues.delete(name, force="force" in view.form)
    return view.done(f"{name} was deleted", "/queues")


@screen.form("/queues/{queue}/offer", Action.PRODUCE, "offer a message")
async def offer(view: View) -> Response:
    name, form = view.path["queue"], view.form
    info = await view.app.queues.get(name)
    at, after = form.get("at", "").strip(), form.get("after", "").strip()
    if at and after:
        raise InvalidInput("give an instant or a delay, not both")
    priority = form.get("priority", "0").strip() or "0"
    if (level := whole(priority, 2)) is None:
        raise InvalidInput(f"priority must be 0 to 9, not {priority!r:.20}")
    queue = view.dashboard.broker.queue(name)
    key = form.get("key", "").strip() or fresh_key()
    outcome = await queue.offer(
        key,
        Content(checked_json(form.get("payload", "")), None),
        at=_instant(at) if at else None,
        after=delay(after, "after") if after else None,
        priority=level,
        type=form.get("type", "").strip() or None,
        lease_for=duration(form["lease_for"], "lease_for") if form.get("lease_for", "").strip() else None,
        max_attempts=_attempts(form.get("max_attempts", "").strip()),
    )
    words = {
        Outcome.CREATED: "was offered",
        Outcome.UPDATED: "replaced the live message",
        Outcome.IGNORED: "changed nothing",
    }
    # Its own page counts down to its delivery; without a journal there is none after it.
    to = path("queues", name) if info.settings.journal is JournalLevel.OFF else message_path(name, key)
    return view.done(f"{key} {words.get(outcome, outcome.value)}", to)


def _attempts(text: str) -> int | None:
    if text and whole(text, 9) is None:
        raise InvalidInput(f"max_attempts must be a number, or empty for those of the queue, not {text!r:.40}")
    return whole(text, 9)


def _instant(text: str) -> datetime:
    at = moment(text, "at")
    if not isinstance(at, datetime):
        raise InvalidInput("at must be an instant; for a delay use after")
    return at


def checked_json(text: str) -> bytes:
    """The text as it is, if it is JSON: numbers keep all their digits."""
    try:
        msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, RecursionError) as error:
        hint = 'a text needs quotes: "hello"'
        raise InvalidInput(f"the payload is not JSON: {error}", hint=hint) from None
    return text.strip().encode()


async def upcoming(view: View, name: str) -> Listing:
    rows = await view.run(view.app.store.messages.list(name, limit=_NEXT, filter=Filter(payloads=False)))
    return Listing(columns=NEXT_COLUMNS, rows=rows, name="messages")


def fields_of(settings: QueueSettings) -> dict[str, str]:
    """Settings as texts of a form."""
    retry = settings.retry
    return {
        **{name: length(getattr(settings, name)) for name in _DURATIONS},
        **{name: str(getattr(settings, name) or "") for name in _LIMITS},
        "description": settings.description or "",
        "retry_initial_for": length(retry.initial_for),
        "retry_factor": f"{retry.factor:g}",
        "retry_cap_for": length(retry.cap_for),
        "retry_jitter": f"{retry.jitter:g}",
        "journal": settings.journal.value,
    }


def changed_settings(info: QueueInfo, form: Mapping[str, str]) -> dict[str, Any]:
    """The settings that differ from those of the queue."""
    settings = info.settings
    values: dict[str, Any] = {name: duration(form[name], name) for name in _DURATIONS if name in form}
    for name in _LIMITS:
        if name in form:
            text = form[name].strip()
            values[name] = limit = whole(text, 9)
            if text and limit is None:
                raise InvalidInput(f"{name} must be a number, or empty for no limit, not {text!r:.40}")
    if "description" in form:
        values["description"] = form["description"].strip() or None
    if "journal" in form:
        try:
            values["journal"] = JournalLevel(form["journal"])
        except ValueError:
            raise InvalidInput(f"journal must be off, events or payloads, not {form['journal']!r:.40}") from None
    retry: dict[str, Any] = {}
    for name in ("initial_for", "cap_for"):
        if f"retry_{name}" in form:
            retry[name] = duration(form[f"retry_{name}"], f"retry {name}")
    for name in ("factor", "jitter"):
        if f"retry_{name}" in form:
            retry[name] = _number(form[f"retry_{name}"], f"retry {name}")
    values["retry"] = Retry(**{**{name: getattr(settings.retry, name) for name in _RETRY}, **retry})
    dataclasses.replace(settings, **values)  # each is checked
    return {name: value for name, value in values.items() if value != getattr(settings, name)}


_RETRY = ("initial_for", "factor", "cap_for", "jitter")


def _number(text: str, name: str) -> float:
    try:
        return float(text[:40])
    except ValueError:
        raise InvalidInput(f"{name} must be a number, not {text!r:.40}") from None


def retry_curve(settings: QueueSettings) -> dict[str, Any]:
    """When attempts follow if all fail: of each its delay, and the time since the first."""
    tries = settings.max_attempts or _RETRIES
    delays = [settings.retry.delay(attempt, 0.0) for attempt in range(1, min(tries, _RETRIES + 1))]
    total, rows = timedelta(0), list[tuple[int, timedelta, timedelta]]()
    for attempt, wait in enumerate(delays, start=2):
        total += wait
        rows.append((attempt, wait, total))
    return {
        "rows": rows,
        "longest": max((wait.total_seconds() for wait in delays), default=0.0),
        "is_cut": settings.max_attempts is None or settings.max_attempts > _RETRIES + 1,
        "total": total,
    }


def attempts_of(events: Sequence[Event]) -> list[tuple[str, int]]:
    """How many attempts the messages took that ended, the fewest first."""
    counts = Counter(event.attempt for event in events if event.kind is not EventKind.OFFERED and event.attempt)
    return [(f"{attempt:,}", counts[attempt]) for attempt in sorted(counts)][:_RETRIES]


def sizes_of(events: Sequence[Event]) -> list[tuple[str, int]]:
    """Payloads by their size, in steps of four."""
    steps = Counter(max(3, ((event.size or 1) - 1).bit_length() + 1 >> 1) for event in events if event.size is not None)
    return [(f"≤ {size(4**step)}", steps[step]) for step in range(min(steps), max(steps) + 1)] if steps else []


def heat(buckets: Sequence[TimeBucket], chosen: TimeRange) -> dict[str, Any]:
    """The lag as a heat map: time from left to right, durations from bottom to top. A percentile would hide two humps."""
    times = chosen.starts
    starts = {start: at for at, start in enumerate(times)}
    counts: Counter[tuple[int, int]] = Counter()
    for row in buckets:
        if row.start_at in starts:
            counts[starts[row.start_at], row.bucket // _PER_ROW] += row.n
    top = max((level for _, level in counts), default=7)
    levels = max(6, top + 1)
    limits_s = [upper_s((level + 1) * _PER_ROW) for level in range(levels)]
    values = {(column, levels - 1 - level): float(n) for (column, level), n in counts.items()}
    titles = {
        (column, levels - 1 - level): (
            f"{times[column]:%H:%M} UTC: {n:,} up to {roughly(timedelta(seconds=limits_s[level]))} late"
        )
        for (column, level), n in counts.items()
    }
    return {
        "cells": charts.cells(values, titles),
        "columns": len(starts),
        "rows": levels,
        "row_labels": [f"≤ {roughly(timedelta(seconds=limit))}" for limit in reversed(limits_s)],
        "column_labels": [
            (at, f"{start:%d %H:%M}" if chosen.until - chosen.since > _DAY else f"{start:%H:%M}")
            for at, start in enumerate(times)
            if not at % max(1, len(starts) // 6)
        ],
        "count": sum(counts.values()),
    }


def _confirmed(view: View) -> str:
    """What destroys needs the name of the queue, typed."""
    name = view.path["queue"]
    if view.form.get("confirm") != name:
        raise Problem(409, "invalid_state", "the confirmation is not the name of the queue; nothing was changed")
    return name


def _commands(view: View, name: str) -> Commands:
    return Commands(
        curl=commands.curl(view.api("queues", name)),
        cli=commands.cli("queue", "show", name),
        python=commands.python(f"print(app.queues.get({name!r}), app.queues.counts({name!r}))"),
    )


def _actions(view: View, name: str) -> dict[str, Commands]:
    """What the dialogs do, in other tools."""
    api, quoted = view.api("queues", name), repr(name)
    return {
        "pause": Commands(
            curl=commands.curl(f"{api}/pause", "POST", {"reason": "deploy"}),
            cli=commands.cli("queue", "pause", name, "--reason", "deploy"),
            python=commands.python(f'app.queues.pause({quoted}, reason="deploy")'),
        ),
        "resume": Commands(
            curl=commands.curl(f"{api}/resume", "POST"),
            cli=commands.cli("queue", "resume", name),
            python=commands.python(f"app.queues.resume({quoted})"),
        ),
        "offer": Commands(
            curl=commands.curl(f"{api}/messages", "POST", {"payload": {"hi": "there"}, "after": "10s"}),
            cli=commands.cli("offer", name, '{"hi": "there"}', "--after", "10s"),
            python=commands.python(f'app.queue({quoted}).offer(None, {{"hi": "there"}}, after=timedelta(seconds=10))'),
        ),
        "purge": Commands(
            curl=commands.curl(f"{api}/purge", "POST", {"confirm": name}),
            cli=commands.cli("queue", "purge", name),
            python=commands.python(f"print(app.queue({quoted}).purge({limits.PURGE_CONFIRMATION!r}))"),
        ),
        "rename": Commands(
            curl=commands.curl(f"{api}/rename", "POST", {"new_name": f"{name}-2"}),
            cli=commands.cli("queue", "rename", name, f"{name}-2"),
            python=commands.python(f"app.queues.rename({quoted}, {f'{name}-2'!r})"),
        ),
        "delete": Commands(
            curl=commands.curl(api, "DELETE"),
            cli=commands.cli("queue", "delete", name),
            python=commands.python(f"app.queues.delete({quoted})"),
        ),
    }


def _edit_commands(view: View, name: str, before: Mapping[str, str], after: Mapping[str, str]) -> Commands | None:
    """Of settings that differ, as texts of the form; the HTTP API replaces the whole of `retry`."""
    texts = {setting: after[setting] for setting in after if before[setting] != after[setting]}
    if not texts:
        return None
    plain = {setting: text for setting, text in texts.items() if not setting.startswith("retry_")}
    body: dict[str, Any] = {**plain}
    body |= {name: whole(plain[name]) for name in _LIMITS if name in plain}
    if "description" in plain:
        body["description"] = plain["description"] or None
    if len(plain) < len(texts):
        body["retry"] = {
            of: after[f"retry_{of}"] if of.endswith("_for") else float(after[f"retry_{of}"]) for of in _RETRY
        }
    words = [word for setting, text in texts.items() for word in (_OPTIONS[setting], text or "none")]
    return Commands(
        curl=commands.curl(view.api("queues", name), "PATCH", body), cli=commands.cli("queue", "edit", name, *words)
    )


_OPTIONS = {
    "lease_for": "--lease-for", "retention_for": "--retention", "target_lag_for": "--target-lag",
    "max_attempts": "--max-attempts", "max_depth": "--max-depth", "description": "--description",
    "retry_initial_for": "--retry-initial", "retry_factor": "--retry-factor",
    "retry_cap_for": "--retry-cap", "retry_jitter": "--retry-jitter", "journal": "--journal",
}  # fmt: skip
