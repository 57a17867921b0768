"""The editor of schedules: a form, and a preview of it by the scheduler's own functions on the database's clock."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any
from zoneinfo import available_timezones

from starlette.responses import Response

from tarry.core.cron import planner
from tarry.core.cron.clock_changes import ClockChange, clock_changes
from tarry.core.cron.model import Policy, ScheduleSpec, ScheduleState
from tarry.core.cron.schedule_types import Cron, Ticks, Timetable, Unreadable
from tarry.core.cron.timezones import zone_of
from tarry.core.errors import InvalidInput, InvalidState
from tarry.core.security.api_keys import Action
from tarry.edges import schedule_words as words
from tarry.edges.dashboard import charts, commands
from tarry.edges.dashboard.commands import Commands
from tarry.edges.dashboard.screen import Page, View
from tarry.edges.dashboard.screens import schedule_forms as forms
from tarry.edges.dashboard.screens.schedule_forms import ScheduleForm, read_form, values_of
from tarry.edges.dashboard.screens.schedules import local, page_path, schedule_of, screen
from tarry.wire.base import data_of
from tarry.wire.ids import schedule_id

_FIRES = 10
_COMPARED = 500
"""Other schedules that are searched for the same minute."""
_MINUTE, _HOUR, _DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
BROWSER_ZONE = "tarry_browser_zone"
"""The cookie with the zone of the browser, which static/schedules.js sets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    sentence: str
    clock: str
    cron: str | None
    """The expression that a simple form stands for."""
    simple: str | None
    """The simple form of an expression."""
    fires: list[tuple[datetime, str, str, str]]
    """Each tick: the instant, in the schedule's zone, in the viewer's zone, and what is unusual."""
    week: list[charts.HeatCell]
    days: list[str]
    changes: list[ClockChange]
    collisions: int
    """Other schedules in the minute of the first tick."""
    ended: bool


@screen.page("/new-schedule", Action.ADMIN)
async def new_schedule(view: View) -> Page:
    values: dict[str, str] = {"name": view.query.get("name", ""), "queue": view.query.get("queue", "")}
    if source := view.query.get("from"):
        states = await view.run(view.app.store.cron.schedules(source))
        if states and view.sees(states[0].spec.queue) and not states[0].spec.by_code:
            values = values_of(states[0].spec, view.redaction)
            values |= {"name": f"{source}-copy", "payload": values["payload"] or "null", "keep": ""}
    return await _editor(view, values, None, is_new=not view.query.get("from"))


@screen.page("/schedules/{schedule}/edit", Action.ADMIN)
async def edit_schedule(view: View) -> Page:
    state = await schedule_of(view, Action.ADMIN)
    _check_editable(state)
    values = values_of(state.spec, view.redaction)
    return await _editor(view, {**values, "generation": str(state.generation)}, state)


@screen.preview("/schedule-preview")
async def preview_schedule(view: View) -> Page:
    """The preview while the form is typed; the whole editor for a browser without scripts."""
    values = {**view.form, **_switched(view.form)}
    if view.request.headers.get("hx-request") and "to" not in view.form:
        return view.page("cron/schedule_preview.html", "Preview", **await _previewed(view, values, None, is_new=True))
    return await _editor(view, values, None, editing=values.get("editing"), is_new=True)


def _switched(form: Mapping[str, str]) -> dict[str, str]:
    """The other form of the same times: cron text, or the simple form."""
    values = {**forms.EMPTY, **form}
    if form.get("to") == "cron":
        try:
            return {"way": "cron", "cron": forms.cron_text(values)}
        except InvalidInput:
            return {"way": "cron"}
    return (forms.simple_values(values["cron"].upper()) or {}) if form.get("to") == "simple" else {}


@screen.form("/new-schedule", Action.ADMIN, "create a schedule")
async def create(view: View) -> Response:
    return await _save(view, None)


@screen.form("/schedules/{schedule}/edit", Action.ADMIN, "edit a schedule")
async def edit(view: View) -> Response:
    state = await schedule_of(view, Action.ADMIN)
    _check_editable(state)
    return await _save(view, state)


async def _save(view: View, state: ScheduleState | None) -> Response:
    stored = None if state is None else state.spec
    values = {**view.form, **({} if state is None else {"name": state.name})}
    form = await _read(view, values, stored)
    if state is None and form.spec is not None and await view.run(view.app.store.cron.schedules(form.spec.name)):
        form.errors["name"] = f"there is a schedule {form.spec.name!r} already: edit it, or choose another name"
    if state is not None and view.form.get("generation") not in (None, str(state.generation)):
        form.errors["name"] = "the schedule was changed by others since this page was opened: reload it"
    if form.errors or form.spec is None:
        page = await _editor(view, values, state, form)
        return view.dashboard.render(view, Page(page.template, page.title, page.values, status=422), screen)
    spec, app = form.spec, view.app
    view.visitor.require(Action.ADMIN, spec.queue)
    await view.dashboard.broker.in_queues([spec.queue], lambda: app.schedules.put(spec), view.visitor.caller)
    if stored is None:
        return view.done(f"{spec.name} is created", page_path(spec.name))
    times = [words.times(each.schedule) for each in (stored, spec)]
    change = "" if times[0] == times[1] else f": {times[0]} to {times[1]}"
    return view.done(f"{spec.name} is changed{change}", page_path(spec.name))


def _check_editable(state: ScheduleState) -> None:
    spec = state.spec
    if spec.by_code or isinstance(spec.schedule, (Ticks, Unreadable)):
        raise InvalidState(
            f"{spec.name!r} is made by a program, which computes its payloads or its ticks",
            hint="change it in that program; it can be paused and deleted here",
        )


async def _read(view: View, values: Mapping[str, str], stored: ScheduleSpec | None) -> ScheduleForm:
    """In a thread: the check of an expression searches its first tick."""
    limit = view.app.store.settings.payload_limit
    return await view.app.schedules.offload.run(read_form, values, view.now, limit, stored)


async def _editor(
    view: View,
    values: Mapping[str, str],
    state: ScheduleState | None,
    form: ScheduleForm | None = None,
    *,
    editing: str | None = None,
    is_new: bool = False,
) -> Page:
    """`is_new`: what is not filled in yet is no error."""
    id = editing or (None if state is None else schedule_id(state.name))
    shown = await _previewed(view, values, form, is_new=is_new)
    queues = await view.queues(Action.ADMIN)
    known = {"keep": "", "generation": "" if state is None else str(state.generation)}
    return view.page(
        "cron/schedule_editor.html",
        f"Edit {values.get('name', '')}" if id else "New schedule",
        editing=id,
        owner=None if state is None or state.spec.source in ("cli", "http", "dashboard") else state.spec.source,
        queues=queues[:500],
        zones=_zones(),
        forms=forms,
        values={**forms.EMPTY, "name": "", "queue": "", "type": "", "start_at": "", "end_at": "", **known, **values},
        page_path=page_path,
        can_keep=bool(values.get("keep")) or (state is not None and values.get("payload") == ""),
        **shown,
    )


async def _previewed(
    view: View, values: Mapping[str, str], form: ScheduleForm | None, *, is_new: bool = False
) -> dict[str, Any]:
    """What `schedule_preview.html` shows."""
    form = form or await _read(view, values, None)
    zone = _viewer_zone(view, values)
    preview = None
    others = [state for state in await view.app.schedules.list() if view.sees(state.spec.queue)]
    if form.schedule is not None and form.policy is not None:
        preview = await view.app.schedules.offload.run(_preview, form, view.now, zone, others[:_COMPARED])
    errors = {
        name: text
        for name, text in form.errors.items()
        if not (is_new and name in ("name", "queue") and not form.text(name))
    }
    return {
        "form": form,
        "errors": errors,
        "labels": forms.LABELS,
        "marked": forms.marked(form.text("cron")) if "cron" in errors and form.text("way") == "cron" else [],
        "preview": preview,
        "viewer_zone": zone,
        "schedule_zone": None if form.schedule is None else form.schedule.zone,
        "zone_local": local,
        "commands": None if form.spec is None else _commands(view, form.spec, form.values),
    }


def _preview(form: ScheduleForm, now: datetime, viewer_zone: str, others: list[ScheduleState]) -> Preview:
    """As the scheduler plans it, on the clock of the database."""
    schedule, policy = form.schedule, form.policy
    assert schedule is not None and policy is not None  # noqa: S101, PT018
    name = form.text("name") or "new"
    spec = ScheduleSpec(name=name[:200], schedule=schedule, queue="preview", payload=b"null", policy=policy)
    state = ScheduleState(spec=spec, cursor_at=now, wake_at=None, decided_at=now, installed_at=now)
    fires = planner.preview(state, now, _FIRES)
    is_cron = isinstance(schedule, Cron)
    simple = forms.simple_values(schedule.text) if is_cron else None
    cells, days = _week(spec.timetable, now.replace(minute=0, second=0, microsecond=0), schedule.zone or "UTC")
    return Preview(
        sentence=words.sentence(schedule),
        clock=words.clock(schedule),
        cron=schedule.text if is_cron and form.text("way") != "cron" else None,
        simple=None if simple is None or form.text("way") != "cron" else forms.simple_words(simple),
        fires=[
            (fire.tick, local(fire.tick, schedule.zone), local(fire.tick, viewer_zone), words.note(schedule, fire))
            for fire in fires
        ],
        week=cells,
        days=days,
        changes=clock_changes(spec.timetable, now),
        collisions=_collisions(fires[0].tick, name, others) if fires else 0,
        ended=not fires,
    )


@lru_cache(maxsize=64)
def _week(timetable: Timetable, since: datetime, zone: str) -> tuple[list[charts.HeatCell], list[str]]:
    """The next seven days by hour, in the zone of the schedule. Cached: most keystrokes do not change the times."""
    local_zone, counts = zone_of(zone), Counter[tuple[int, int]]()
    first = since.astimezone(local_zone).date()
    for start, count in timetable.per_slice(since - timedelta(microseconds=1), since + 7 * _DAY, _HOUR):
        at = start.astimezone(local_zone)
        counts[at.hour, (at.date() - first).days] += count
    days = [first + at * _DAY for at in range(7)]
    titles = {
        (hour, row): f"{days[row]:%a} {hour:02}:00: {count:,} {'tick' if count == 1 else 'ticks'}"
        for (hour, row), count in counts.items()
        if row < 7
    }
    return charts.cells({at: float(counts[at]) for at in titles}, titles), [f"{day:%a %d}" for day in days]


def _collisions(tick: datetime, name: str, others: list[ScheduleState]) -> int:
    """How many other schedules fire in the minute of a tick."""
    minute = tick.replace(second=0, microsecond=0)
    count = 0
    for state in others:
        if not state.paused and state.name != name:
            at = state.spec.timetable.next_after(minute - timedelta(microseconds=1))
            count += at is not None and at < minute + _MINUTE
    return count


def _viewer_zone(view: View, values: Mapping[str, str]) -> str:
    for name in (values.get("viewer_zone"), view.request.cookies.get(BROWSER_ZONE)):
        try:
            return zone_of(name or "").key
        except InvalidInput:
            continue
    return "UTC"


@lru_cache(maxsize=1)
def _zones() -> list[str]:
    names = (
        name for name in available_timezones() if "/" in name and not name.startswith(("Etc/", "posix/", "right/"))
    )
    return ["UTC", *sorted(names)]


def _commands(view: View, spec: ScheduleSpec, values: Mapping[str, str]) -> Commands:
    """What the form does, in other tools. A payload that is kept is not shown."""
    text, zone, kind = spec.schedule.text, spec.schedule.zone, spec.schedule.kind
    times = words.times(spec.schedule).removeprefix("every ") if kind == "periodic" else text.replace(", ", ",")
    way = {"cron": "cron", "daily": "daily", "periodic": "every"}[kind]
    payload = "…" if values.get("keep") else json.loads(values.get("payload") or "null")
    policy = {
        field.name: data_of(getattr(spec.policy, field.name))
        for field in fields(Policy)
        if getattr(spec.policy, field.name) != getattr(Policy(), field.name)
    }
    body = {way: times.split(",") if kind == "daily" else times, "zone": zone, "queue": spec.queue, "payload": payload}
    more = {"priority": spec.priority, "type": spec.type, **policy}
    body |= {name: value for name, value in more.items() if value}
    options = {f"--{way}": times, "--zone": zone, "--queue": spec.queue, "--payload": json.dumps(payload)}
    options |= {f"--{name.removesuffix('_for').removesuffix('_at').replace('_', '-')}": v for name, v in policy.items()}
    verb = "edit" if values.get("editing") else "add"
    return Commands(
        curl=commands.curl(
            view.api("schedules", schedule_id(spec.name)),
            "PUT",
            {name: value for name, value in body.items() if value is not None or name == "payload"},
        ),
        cli=commands.cli(
            "cron", verb, spec.name, *(str(v) for item in options.items() if item[1] is not None for v in item)
        ),
        python=_python(spec, payload),
    )


def _python(spec: ScheduleSpec, payload: object) -> str:
    text, zone = spec.schedule.text, spec.schedule.zone
    times = {
        "cron": f"install_cron({spec.name!r}, {text!r}, zone={zone!r}",
        "daily": f"install_daily({spec.name!r}, {text.split(', ')!r}, zone={zone!r}",
        "periodic": f"install_periodic({spec.name!r}, timedelta(milliseconds={text.removesuffix('ms')})",
    }[spec.schedule.kind]
    return commands.python("with app.cron() as cron:", f"    cron.{times}, queue={spec.queue!r}, payload={payload!r})")
