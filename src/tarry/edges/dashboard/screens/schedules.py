"""Schedules: the list, one schedule with its ledger, and what can be done with it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from starlette.responses import Response

from tarry.core.cron import planner
from tarry.core.cron.clock_changes import clock_changes
from tarry.core.cron.explain import explain
from tarry.core.cron.model import MADE, Reason, ScheduleState, TickRecord
from tarry.core.cron.planner import Fire
from tarry.core.cron.schedule_types import Ticks, Unreadable
from tarry.core.cron.timezones import instant as instant_of_reading
from tarry.core.cron.timezones import zone_of
from tarry.core.errors import InvalidInput, UnknownSchedule
from tarry.core.security.api_keys import Action
from tarry.edges import schedule_words as words
from tarry.edges.dashboard import commands
from tarry.edges.dashboard.audits import paused_by
from tarry.edges.dashboard.commands import Commands, path
from tarry.edges.dashboard.listing import Column, Listing
from tarry.edges.dashboard.screen import Page, Screen, View
from tarry.edges.formats import exact, moment
from tarry.wire.ids import parse_schedule_id, schedule_id

screen = Screen("schedules", "Schedules", "/schedules", shortcut="s", icon="schedules")
_SHOWN_TICKS = 24
"""Of each schedule of the list."""
_AHEAD = 10
_SOURCES = {"cli": "the command line", "http": "the HTTP API", "dashboard": "the dashboard"}


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    state: ScheduleState
    now: datetime
    fires: Sequence[Fire]
    ticks: Sequence[TickRecord]
    """The last ones, newest first."""

    @property
    def name(self) -> str:
        return self.state.name

    @property
    def condition(self) -> words.ScheduleCondition:
        return words.condition(self.state, self.now, self.fires[0].tick if self.fires else None)

    @property
    def last(self) -> TickRecord | None:
        return self.ticks[0] if self.ticks else None

    @property
    def late_for(self) -> timedelta | None:
        return None if self.last is None else late_for(self.last)

    @property
    def owner(self) -> str | None:
        """What installs it again when it starts, so that a change lasts until then."""
        source = self.state.spec.source
        return None if source in _SOURCES else source


def late_for(record: TickRecord) -> timedelta:
    """How long after its time a tick was decided."""
    return max(timedelta(0), record.decided_at - (record.until or record.tick))


def tone_of(record: TickRecord) -> str:
    if record.verdict in MADE:
        return "paused" if record.reason is Reason.LATE else "done"
    return "dead" if record.reason in (Reason.MISFIRE, Reason.OVERLAP) else "soft"


COLUMNS = (
    Column("name", "Schedule", href=lambda row: page_path(row.name)),
    Column("meaning", "Meaning", value=lambda row: words.sentence(row.state.spec.schedule)),
    Column("times", "Times", "code", value=lambda row: words.times(row.state.spec.schedule)),
    Column("zone", "Zone", value=lambda row: row.state.spec.schedule.zone),
    Column("queue", "Queue", value=lambda row: row.state.spec.queue),
    Column("next", "Next", value=lambda row: [fire.tick for fire in row.fires]),
    Column("last_tick", "Last tick", "time", value=lambda row: row.last and row.last.tick),
    Column("last_verdict", "Verdict", value=lambda row: row.last and row.last.verdict.value),
    Column("last_reason", "Reason", value=lambda row: row.last and row.last.reason.value),
    Column("late_for", "Late", "duration"),
    Column("state", "State", value=lambda row: row.condition.words),
    Column("paused_reason", "Paused because", value=lambda row: row.state.paused_reason),
    Column("misfire", "Misfire", value=lambda row: row.state.spec.policy.misfire.value),
    Column("overlap", "Overlap", value=lambda row: row.state.spec.policy.overlap.value),
    Column("source", "Source", value=lambda row: row.state.spec.source),
)


def page_path(name: str, *parts: str) -> str:
    return path("schedules", schedule_id(name), *parts)


@screen.page("/schedules")
async def schedules(view: View) -> Page:
    states = [state for state in await view.app.schedules.list() if view.sees(state.spec.queue)]
    after, sought = view.query.get("after", ""), view.query.get("q", "").strip().lower()
    matching = [
        state
        for state in states
        if state.name > after and (sought in state.name.lower() or sought in state.spec.queue.lower())
    ]
    shown = matching[: view.limit]
    rows = await schedule_rows(view, shown)
    listing = Listing(
        columns=COLUMNS, rows=rows, next=shown[-1].name if len(matching) > len(shown) else None, name="schedules"
    )
    return view.page(
        "cron/schedules.html",
        "Schedules",
        topics=("schedules", "clock"),
        listing=listing,
        count=len(states),
        counts={
            "paused": sum(state.paused for state in states),
            "unplanned": sum(
                not state.paused and state.wake_at is not None and view.now - state.wake_at > words.LATE_FOR
                for state in states
            ),
        },
        words=words,
        page_path=page_path,
        tone_of=tone_of,
        paused_by=await _paused_by(view, shown),
        may_create=view.may("admin") or bool(states and any(view.may("admin", s.spec.queue) for s in states)),
        commands=Commands(
            curl=commands.curl(view.api("schedules")),
            cli=commands.cli("cron", "list"),
            python=commands.python("for state in app.schedules.list():", "    print(state.name, state.spec.schedule)"),
        ),
        first=Commands(
            curl=commands.curl(
                view.api("schedules", "hello"), "PUT", {"every": "5m", "queue": "hello", "payload": {"hi": "there"}}
            ),
            cli=commands.cli(
                "cron", "add", "hello", "--every", "5m", "--queue", "hello", "--payload", '{"hi": "there"}'
            ),
        ),
    )


async def _paused_by(view: View, states: Sequence[ScheduleState]) -> dict[str, str]:
    return await paused_by(view, {state.name: state.paused_at for state in states if state.paused_at is not None})


async def schedule_rows(view: View, states: Sequence[ScheduleState]) -> list[ScheduleRow]:
    """Ticks are computed in a thread, and the ledgers of all are read together."""
    names, now = [state.name for state in states], view.now

    def next_fires() -> list[list[Fire]]:
        return [[] if state.paused else planner.preview(state, now, 3) for state in states]

    fires = await view.app.schedules.offload.run(next_fires)
    past = await view.run(view.app.store.rollups.recent_ticks(names, now, limit=_SHOWN_TICKS))
    last_fire = max((fire.tick for ahead in fires for fire in ahead), default=now)
    ahead = await view.run(view.app.store.rollups.recent_ticks(names, last_fire, limit=8))
    ticks, coming = defaultdict[str, list[TickRecord]](list), defaultdict[str, list[TickRecord]](list)
    for record in past:
        ticks[record.name].append(record)
    for record in ahead:
        coming[record.name].append(record)
    return [
        ScheduleRow(state, now, planner.with_verdicts(state, own, coming[state.name]), ticks[state.name])
        for state, own in zip(states, fires, strict=True)
    ]


async def schedule_of(view: View, action: Action = Action.READ) -> ScheduleState:
    """The schedule of the path. One whose queue the visitor may not see is unknown to it."""
    text = view.path["schedule"]
    name = parse_schedule_id(text)
    states = [] if name is None else await view.run(view.app.store.cron.schedules(name))
    if not states or not view.sees(states[0].spec.queue):
        raise UnknownSchedule(name or text)
    view.visitor.require(action, states[0].spec.queue)
    return states[0]


@dataclass(frozen=True, slots=True)
class ShownTick:
    record: TickRecord
    explanation: str
    zone: str

    @property
    def tone(self) -> str:
        return tone_of(self.record)

    @property
    def late_for(self) -> timedelta:
        return late_for(self.record)

    @property
    def local(self) -> str:
        return local(self.record.tick, self.zone)


def local(at: datetime, zone: str | None) -> str:
    """Local time with its offset."""
    wall = at.astimezone(zone_of(zone or "UTC"))
    return f"{wall:{'%a %Y-%m-%d %H:%M:%S %z' if wall.second else '%a %Y-%m-%d %H:%M %z'}}"


TICK_COLUMNS = (
    Column("tick", "Tick", "time", value=lambda row: row.record.tick),
    Column("until", "Until", "time", value=lambda row: row.record.until),
    Column("count", "Ticks", "number", value=lambda row: row.record.count),
    Column("verdict", "Verdict", value=lambda row: row.record.verdict.value),
    Column("reason", "Reason", value=lambda row: row.record.reason.value),
    Column("late_for", "Late", "duration"),
    Column("decided_at", "Decided", "time", value=lambda row: row.record.decided_at),
    Column("queue", "Queue", value=lambda row: row.record.queue),
    Column("key", "Message", "code", value=lambda row: row.record.key),
    Column("live", "Live", value=lambda row: row.record.live),
    Column("explanation", "Explanation"),
)


@screen.page("/schedules/{schedule}")
@screen.page("/schedules/{schedule}/ticks")
async def schedule(view: View) -> Page:
    name = parse_schedule_id(view.path["schedule"])
    states = [] if name is None else await view.run(view.app.store.cron.schedules(name))
    if name is None or (not states and not view.visitor.permits(Action.READ, None)):
        raise UnknownSchedule(name or view.path["schedule"])
    if not states:
        return await _deleted(view, name)
    state = await schedule_of(view)
    spec, zone = state.spec, state.spec.schedule.zone
    listing = await _ticks(view, state, state.name)
    fires = [] if state.paused else await view.app.schedules.preview(name, _AHEAD)
    changes = await view.app.schedules.offload.run(clock_changes, spec.timetable, view.now)
    explained, tick = None, view.query.get("tick", "").strip()
    if tick:
        at = moment(tick, "tick")
        explained = await view.app.schedules.explain(name, view.now + at if isinstance(at, timedelta) else at)
    payload = None
    if spec.payload is not None:
        payload = view.redaction.payload(spec.payload, spec.content_type)
    return view.page(
        "cron/schedule.html",
        name,
        topics=("schedules", "clock"),
        name=name,
        row=ScheduleRow(state, view.now, fires, [shown.record for shown in listing.rows]),
        fires=[(fire, local(fire.tick, zone), words.note(spec.schedule, fire)) for fire in fires],
        changes=changes,
        local=local,
        listing=listing,
        explained=explained,
        payload=payload,
        words=words,
        page_path=page_path,
        paused_by=await _paused_by(view, [state]),
        is_editable=not spec.by_code and not isinstance(spec.schedule, (Ticks, Unreadable)),
        commands=_commands(view, name),
        backfill_since=_wall(view.now - timedelta(days=1), zone),
        backfill_until=_wall(view.now, zone),
    )


def _commands(view: View, name: str) -> dict[str, Commands]:
    """The page and its actions in other tools, by action."""
    id = schedule_id(name)

    def action(verb: str, call: str, body: dict[str, Any] | None = None, *words: str) -> Commands:
        return Commands(
            curl=commands.curl(f"{view.api('schedules', id)}:{verb}", "POST", body),
            cli=commands.cli("cron", verb, name, *words),
            python=commands.python(f"app.schedules.{call}"),
        )

    since, until = exact(view.now - timedelta(days=1)), exact(view.now)
    span = f"datetime.fromisoformat({since!r}), datetime.fromisoformat({until!r})"
    return {
        "show": Commands(
            curl=commands.curl(f"{view.api('schedules', id)}:history"),
            cli=commands.cli("cron", "show", name),
            python=commands.python(f"for tick in app.schedules.history({name!r}):", "    print(tick)"),
        ),
        "trigger": action("trigger", f"trigger({name!r})"),
        "skip": action("skip", f"skip({name!r})"),
        "pause": action("pause", f"pause({name!r}, reason='…')", {"reason": "…"}, "--reason", "…"),
        "resume": action("resume", f"resume({name!r})"),
        "backfill": action(
            "backfill",
            f"backfill({name!r}, {span})",
            {"since": since, "until": until},
            *("--since", since, "--until", until),
        ),
        "delete": Commands(
            curl=commands.curl(view.api("schedules", id), "DELETE"),
            cli=commands.cli("cron", "delete", name),
            python=commands.python(f"app.schedules.delete({name!r})"),
        ),
    }


async def _deleted(view: View, name: str) -> Page:
    listing = await _ticks(view, None, name)
    if not listing.rows:
        raise UnknownSchedule(name)
    return view.page(
        "cron/schedule.html",
        name,
        name=name,
        row=None,
        listing=listing,
        page_path=page_path,
        commands=_commands(view, name),
    )


async def _ticks(view: View, state: ScheduleState | None, name: str) -> Listing:
    """A page of the ledger, with what is visible of each entry and its explanation."""
    after = view.query.get("after")
    until = None if not after else _exact(after) - timedelta(microseconds=1)
    records = await view.app.schedules.history(name, until=until, limit=view.limit + 1)
    page = [record for record in records if state is None or record.ledger == state.ledger][: view.limit]
    rows: list[ShownTick] = []
    for record in page:
        if record.queue is not None and not view.sees(record.queue):
            record = replace(record, queue=None, key=None, version=None)
        text = f"{record.verdict}, {record.reason}"
        if state is not None:
            text = explain(state, record.tick, view.now, [record]).partition(": ")[2]
        zone = (state and state.spec.schedule.zone) or "UTC"
        rows.append(ShownTick(record, view.redaction.text(text), zone))
    next = exact(page[-1].tick) if len(records) > len(page) and page else None
    return Listing(columns=TICK_COLUMNS, rows=rows, next=next, name="ticks")


def _exact(text: str) -> datetime:
    at = moment(text, "after")
    if isinstance(at, timedelta) or at.timestamp() < 0:
        raise InvalidInput("after is not the `next` of a page")
    return at


@screen.form("/schedules/{schedule}/trigger", Action.ADMIN, "trigger a schedule")
async def trigger(view: View) -> Response:
    state = await schedule_of(view, Action.ADMIN)
    await view.app.schedules.trigger(state.name)
    return view.done(f"{state.name} was triggered: its message is in {state.spec.queue}", page_path(state.name))


@screen.form("/schedules/{schedule}/pause", Action.ADMIN, "pause a schedule")
async def pause(view: View) -> Response:
    state = await schedule_of(view, Action.ADMIN)
    await view.app.schedules.pause(state.name, reason=view.form.get("reason", "").strip() or None)
    return view.done(f"{state.name} is paused", page_path(state.name))


@screen.form("/schedules/{schedule}/resume", Action.ADMIN, "resume a schedule")
async def resume(view: View) -> Response:
    state = await schedule_of(view, Action.ADMIN)
    await view.app.schedules.resume(state.name)
    return view.done(f"{state.name} fires again from its next tick on", page_path(state.name))


@screen.form("/schedules/{schedule}/skip", Action.ADMIN, "skip the next tick of a schedule")
async def skip(view: View) -> Response:
    state = await schedule_of(view, Action.ADMIN)
    tick = await view.app.schedules.skip(state.name)
    return view.done(f"{state.name} leaves out its tick {local(tick, state.spec.schedule.zone)}", page_path(state.name))


@screen.form("/schedules/{schedule}/delete", Action.ADMIN, "delete a schedule")
async def delete(view: View) -> Response:
    state = await schedule_of(view, Action.ADMIN)
    if view.form.get("confirm") != state.name:
        raise InvalidInput(f"type {state.name} to delete it: nothing was deleted")
    await view.app.schedules.delete(state.name)
    return view.done(f"{state.name} is deleted; its history stays", "/schedules")


@screen.page("/schedules/{schedule}/backfill")
async def backfill_preview(view: View) -> Page:
    """What a backfill would create: the number first."""
    state = await schedule_of(view)
    zone = state.spec.schedule.zone
    window = {"since": _wall(view.now - timedelta(days=1), zone), "until": _wall(view.now, zone)}
    since, until = (_read_wall(view.query.get(name) or window[name], name, zone) for name in window)
    ticks = await view.app.schedules.missing(state.name, since, until)
    columns = (
        Column("tick", "Tick", "time", value=lambda tick: tick),
        Column("local", "Local time", value=lambda tick: local(tick, zone)),
    )
    return view.page(
        "cron/backfill.html",
        f"Backfill {state.name}",
        state=state,
        count=len(ticks),
        since=since,
        until=until,
        local=local,
        wall=_wall,
        page_path=page_path,
        listing=Listing(columns=columns, rows=ticks[: view.limit], name="ticks"),
        commands=_commands(view, state.name)["backfill"],
    )


@screen.form("/schedules/{schedule}/backfill", Action.ADMIN, "backfill a schedule")
async def backfill(view: View) -> Response:
    state = await schedule_of(view, Action.ADMIN)
    since, until = (_exact(view.form.get(name, "")) for name in ("since", "until"))
    ticks = await view.app.schedules.backfill(state.name, since, until)
    made = "1 message" if len(ticks) == 1 else f"{len(ticks):,} messages"
    return view.done(f"{made} of {state.name} created", page_path(state.name))


def _wall(at: datetime, zone: str | None) -> str:
    """For an input of local time."""
    return f"{at.astimezone(zone_of(zone or 'UTC')):%Y-%m-%dT%H:%M}"


def _read_wall(text: str, name: str, zone: str | None) -> datetime:
    try:
        wall = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InvalidInput(f"{name} must be a date and a time, not {text!r:.80}") from None
    return wall if wall.tzinfo is not None else instant_of_reading(zone_of(zone or "UTC"), wall)
