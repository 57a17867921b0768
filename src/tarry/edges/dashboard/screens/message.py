"""One message: what it is, why it is not delivered, its complete history, and what can be done with it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import msgspec
from starlette.responses import Response

from tarry.core import limits
from tarry.core.dead_letters.redrive import DeadFilter
from tarry.core.errors import InvalidInput
from tarry.core.journal.events import Event, EventKind
from tarry.core.journal.history import Phase, history
from tarry.core.journal.replay import BEGINS
from tarry.core.messages.edits import Edit
from tarry.core.messages.explain import Why, why_not_delivered
from tarry.core.messages.model import DeadLetter, StoredMessage
from tarry.core.messages.outcomes import Edited
from tarry.core.messages.states import State
from tarry.core.search.query import Period, Search, Span
from tarry.core.security.api_keys import Action
from tarry.core.settings import QueueInfo
from tarry.edges.dashboard import commands
from tarry.edges.dashboard.commands import Commands
from tarry.edges.dashboard.error_diff import compared
from tarry.edges.dashboard.listing import whole
from tarry.edges.dashboard.screen import Page, View
from tarry.edges.dashboard.screens.messages import message_path, screen
from tarry.edges.dashboard.timeline import drawing
from tarry.edges.formats import moment
from tarry.edges.http.problems import Problem
from tarry.services.bulk import SeenMessage, Verb, apply
from tarry.wire.events import LiveEvent
from tarry.wire.ids import MessageId

EVENTS = 1_000
_LATELY = timedelta(minutes=15)
_VIEWS = ("timeline", "compact", "raw")
_EDITED = {
    Edited.LEASED: "a consumer has leased it: nothing was changed. Wait until it is settled",
    Edited.CHANGED: "it has changed since this page was made: nothing was changed. Look at it again",
    Edited.GONE: "it is no longer live: nothing was changed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspected:
    """A message in whatever state it is; of a finished one only its events are left."""

    queue: str
    key: str
    state: State | None
    """None: it ended otherwise than by an ack, or nothing is known."""
    live: StoredMessage[bytes] | None
    dead: DeadLetter[bytes] | None
    events: Sequence[Event]

    @property
    def stored(self) -> StoredMessage[bytes] | DeadLetter[bytes] | None:
        return self.live or self.dead

    @property
    def ended(self) -> Event | None:
        return self.events[-1] if self.events and self.stored is None else None


@screen.page("/queues/{queue}/messages/{key:path}")
async def message(view: View) -> Page:
    return await _page(view, view.path["queue"], view.path["key"])


@screen.page("/queues/{queue}/message")
async def message_by_query(view: View) -> Page:
    return await _page(view, view.path["queue"], view.query.get("key", ""))


async def _page(view: View, queue: str, key: str) -> Page:
    limits.check_key(key)
    info = await view.app.queues.get(queue)
    inspected = await _inspect(view, queue, key)
    if inspected.stored is None and not inspected.events:
        hint = (
            "the journal of this queue is off"
            if info.settings.journal.value == "off"
            else "search for a part of its key"
        )
        raise Problem(404, "not_found", f"queue {queue} has no message {key!r:.100}, and no history of it", hint=hint)
    redaction = view.redaction
    past = history(inspected.events, view.now)
    shown = (
        None if inspected.stored is None else redaction.payload(inspected.stored.payload, inspected.stored.content_type)
    )
    chosen = view.query.get("view", _VIEWS[0])
    steps = [
        {
            "event": event,
            "since": None if before is None else event.at - before.at,
            "facts": _facts(event),
            "error": None if event.error is None else redaction.text(event.error),
        }
        for before, event in pairwise([None, *inspected.events])
        if event is not None
    ]
    return view.page(
        "messages/message.html",
        key,
        topics=("messages", "clock"),
        inspected=inspected,
        info=info,
        why=await _why(view, inspected, info),
        history=past,
        drawn=drawing(past),
        totals={phase: past.total(phase) for phase in Phase},
        steps=steps,
        is_cut=len(inspected.events) == EVENTS,
        chosen=chosen if chosen in _VIEWS else _VIEWS[0],
        views=_VIEWS,
        raw=_raw(view, inspected.events) if chosen == "raw" else "",
        payload=shown,
        headers={name: redaction.value({name: value})[name] for name, value in (_headers(inspected) or {}).items()},
        error=None if _error(inspected) is None else redaction.text(_error(inspected) or ""),
        attempt_errors=compared([(attempt.number, redaction.text(attempt.error or "")) for attempt in past.attempts]),
        lineage=await _lineage(view, inspected),
        message_path=message_path,
        commands=_commands(view, inspected),
        actions=_actions(view, inspected.live) if inspected.live else {},
        again=_again(view, queue, inspected.stored.payload.decode())
        if inspected.stored and shown and shown.is_json and not shown.hidden and not shown.cut
        else None,
        acts=inspected.live is not None and view.may("produce", queue),
    )


async def _inspect(view: View, queue: str, key: str) -> Inspected:
    store = view.app.store
    live = await view.run(store.messages.read(queue, key))
    events = await view.run(store.journal.timeline(queue, key, limit=EVENTS))
    dead = None
    if live is None or "version" in view.query:
        dead = await _dead(view, queue, key, events)
    if dead is not None and "version" in view.query:
        live = None
    state = live.state if live else State.DEAD if dead else None
    if state is None and events and events[-1].kind is EventKind.ACKED:
        state = State.DONE
    return Inspected(queue=queue, key=key, state=state, live=live, dead=dead, events=events)


async def _dead(view: View, queue: str, key: str, events: Sequence[Event]) -> DeadLetter[bytes] | None:
    named = whole(view.query.get("version", ""))
    buried = [event.version for event in events if event.kind is EventKind.BURIED and event.version]
    versions = tuple(version for version in ([named] if named else buried[-20:]) if version)
    if not versions:
        return None
    letters = await view.run(view.app.store.dead_letters.list(queue, where=DeadFilter(versions=versions), limit=20))
    return next((letter for letter in letters if letter.key == key), None)


async def _why(view: View, inspected: Inspected, info: QueueInfo) -> Why | None:
    message, store = inspected.live, view.app.store
    if message is None:
        return None
    if message.state is not State.READY:
        return why_not_delivered(message, info, view.now)
    await view.dashboard.roll_ups.fresh()
    same = Search(
        state=State.READY, priority=Span(message.priority, message.priority), due=Period(None, message.due_at)
    )
    ahead = (await view.run(store.search.messages(same, [info.name], limit=0))).matching
    if message.priority < 9:
        above = Search(state=State.READY, priority=Span(message.priority + 1, 9))
        more = (await view.run(store.search.messages(above, [info.name], limit=0))).matching
        ahead = ahead._replace(n=ahead.n + more.n, capped=ahead.capped or more.capped)
    since = view.now - _LATELY
    slices = await view.run(store.rollups.consumers(timedelta(minutes=1), since, view.now, queue=info.name))
    return why_not_delivered(message, info, view.now, ahead=ahead, consumers=len({row.consumer for row in slices}))


async def _lineage(view: View, inspected: Inspected) -> dict[str, Any]:
    """Where it comes from, and what else has its key."""
    names = [name for name in await view.queues() if name != inspected.queue]
    same = await view.run(view.app.store.search.messages(Search(key=inspected.key), names, limit=20))
    ticks = [event.detail for event in inspected.events if event.kind is EventKind.CRON_PLANNED and event.detail]
    redriven = [event for event in inspected.events if event.kind is EventKind.REDRIVEN]
    return {
        "origin": inspected.stored.origin if inspected.stored else None,
        "redriven": redriven,
        "lives": sum(event.kind in BEGINS for event in inspected.events),
        "schedule": ticks[-1] if ticks else None,
        "same_key": same.messages,
    }


def _headers(inspected: Inspected) -> Mapping[str, str] | None:
    return None if inspected.stored is None else inspected.stored.headers


def _error(inspected: Inspected) -> str | None:
    if inspected.live is not None:
        return inspected.live.last_error
    return None if inspected.dead is None else inspected.dead.error


def _facts(event: Event) -> list[str]:
    """What an event changed, in words."""
    facts: list[str] = []
    if event.attempt and event.kind in (EventKind.LEASED, EventKind.NACKED, EventKind.ACKED, EventKind.BURIED):
        facts.append(f"attempt {event.attempt}")
    if event.consumer:
        facts.append(f"by {event.consumer}")
    if event.kind in (EventKind.LEASED, EventKind.TOUCHED) and event.lease_until:
        facts.append(f"leased until {event.lease_until:%H:%M:%S}")
    elif event.due_at and event.kind not in (EventKind.ACKED, EventKind.BURIED, EventKind.DROPPED):
        facts.append(f"due {event.due_at:%Y-%m-%d %H:%M:%S}")
    if event.size is not None:
        facts.append(f"{event.size:,} bytes")
    for name, value in (event.detail or {}).items():
        if name not in ("headers", "content_type"):
            facts.append(f"{name.replace('_', ' ')}: {json.dumps(value) if isinstance(value, (list, dict)) else value}")
    return [fact[:200] for fact in facts]


def _raw(view: View, events: Sequence[Event]) -> str:
    redaction = view.redaction
    rows = [redaction.value(msgspec.to_builtins(LiveEvent.of(event))) for event in events]
    return json.dumps(rows, indent=2, ensure_ascii=False)


def _commands(view: View, inspected: Inspected) -> Commands:
    id = str(MessageId(inspected.queue, inspected.key))
    return Commands(
        curl=commands.curl(view.api("messages", id) if inspected.live else view.api("messages", id, "timeline")),
        cli=commands.cli("message", "show" if inspected.live else "timeline", inspected.queue, inspected.key),
        python=commands.python(f"print(app.queue({inspected.queue!r}).read({inspected.key!r}))"),
    )


def _actions(view: View, live: StoredMessage[bytes]) -> dict[str, Commands]:
    """What the dialogs do: of this version of the message only, and not while it is leased."""
    queue, key, version = live.queue, live.key, live.version
    url, seen = view.api("messages", str(MessageId(queue, key))), {"version": str(version)}

    def edit(body: dict[str, Any], call: str, *words: str) -> Commands:
        return Commands(
            curl=commands.curl(url, "PATCH", body, seen),
            cli=commands.cli("message", "edit", queue, key, *words, "--version", str(version)),
            python=commands.python(f"print(app.queue({queue!r}).edit({key!r}, {call}, version={version}))"),
        )

    bury = f"app.store.messages.bury_by_key({queue!r}, {key!r}, error='why', version={version})"
    return {
        "deliver": edit({"after": "0s"}, "after=timedelta(0)", "--after", "0s"),
        "reschedule": edit({"after": "10m"}, "after=timedelta(minutes=10)", "--after", "10m"),
        "edit": edit({"priority": live.priority}, f"priority={live.priority}", "--priority", str(live.priority)),
        "bury": Commands(python=commands.python(f"print(app.store.run({bury}))")),
        "drop": Commands(
            curl=commands.curl(url, "DELETE", query={**seen, "unless_leased": "true"}),
            cli=commands.cli("message", "drop", queue, key, "--version", str(version), "--unless-leased"),
            python=commands.python(f"print(app.queue({queue!r}).drop({key!r}, version={version}, unless_leased=True))"),
        ),
    }


def _again(view: View, queue: str, text: str) -> Commands:
    """The same offer, under a new key."""
    body = '{"payload": ' + text + "}"
    url = view.api("queues", queue, "messages")
    sending = commands.curl(url, "POST", {}).rsplit(" -d ", 1)[0]
    return Commands(
        curl=f"{sending} -d {shlex.quote(body)}",
        cli=commands.cli("offer", queue, text),
        python=commands.python(f"app.queue({queue!r}).offer(None, {_literal(text)})"),
    )


def _literal(text: str) -> str:
    try:
        return repr(json.loads(text))
    except ValueError:
        return repr(text)


@screen.form("/queues/{queue}/message/deliver", Action.PRODUCE, "deliver a message now")
async def deliver(view: View) -> Response:
    return await _edit(view, Edit(named=frozenset({"due_at"}), after=timedelta(0)), "is due now")


@screen.form("/queues/{queue}/message/reschedule", Action.PRODUCE, "reschedule a message")
async def reschedule(view: View) -> Response:
    at = moment(view.form.get("at", ""), "at")
    edit = Edit(
        named=frozenset({"due_at"}),
        due_at=limits.check_instant(at, "at") if isinstance(at, datetime) else None,
        after=at if isinstance(at, timedelta) else None,
    )
    return await _edit(view, edit, "is rescheduled")


@screen.form("/queues/{queue}/message/edit", Action.PRODUCE, "edit a message")
async def edit(view: View) -> Response:
    """Only fields that differ from the message are changed."""
    queue, (key, version), form = view.path["queue"], _version(view), view.form
    current = await view.run(view.app.store.messages.read(queue, key))
    if current is None or current.version != version:
        raise Problem(409, "changed", _EDITED[Edited.GONE if current is None else Edited.CHANGED])
    values: dict[str, Any] = {}
    priority, type, most = form.get("priority", ""), form.get("type", "").strip() or None, form.get("max_attempts", "")
    if priority and priority != str(current.priority):
        values["priority"] = limits.check_priority(_whole(priority, "priority"))
    if "type" in form and type != current.type:
        values["type"] = limits.check_type(type)
    if "max_attempts" in form and most != str(current.own_max_attempts or ""):
        values["max_attempts"] = limits.check_max_attempts(_whole(most, "max_attempts")) if most else None
    if "payload" in form and form["payload"].encode() != current.payload:
        values["payload"] = _json_payload(form["payload"], view.app.store.settings.payload_limit)
    if not values:
        return view.done("nothing was changed", message_path(queue, key))
    more: dict[str, Any] = {"content_type": current.content_type} if "payload" in values else {}
    return await _edit(view, Edit(named=frozenset(values), **values, **more), "is changed")


@screen.form("/queues/{queue}/message/bury", Action.PRODUCE, "bury a message")
async def bury(view: View) -> Response:
    return await _apply(view, Verb.BURY, "is buried", view.form.get("error", "").strip() or None)


@screen.form("/queues/{queue}/message/drop", Action.PRODUCE, "drop a message")
async def drop(view: View) -> Response:
    return await _apply(view, Verb.DROP, "is dropped")


async def _apply(view: View, verb: Verb, done: str, error: str | None = None) -> Response:
    queue, (key, version) = view.path["queue"], _version(view)
    if not await apply(view.app.store, verb, SeenMessage(queue, key, version), error=error):
        detail = "it is leased, or has changed since this page was made: nothing was changed"
        raise Problem(409, "changed", detail, hint="look at it again")
    return view.done(f"{key} {done}", message_path(queue, key))


async def _edit(view: View, edit: Edit, done: str) -> Response:
    queue, (key, version) = view.path["queue"], _version(view)
    outcome = await view.run(view.app.store.messages.edit(queue, key, edit, version=version))
    if outcome in _EDITED:
        raise Problem(409, outcome.value, _EDITED[outcome])
    return view.done(f"{key} {done}", message_path(queue, key))


def _version(view: View) -> tuple[str, int]:
    return limits.check_key(view.form.get("key", "")), _whole(view.form.get("version", ""), "version")


def _whole(text: str, name: str) -> int:
    if (number := whole(text)) is None:
        raise InvalidInput(f"{name} must be a number, not {text!r:.40}")
    return number


def _json_payload(text: str, limit: int) -> bytes:
    try:
        json.loads(text)
    except ValueError as error:
        raise InvalidInput(f"payload is not JSON: {error}") from None
    return limits.check_payload_size(text.encode(), limit)
