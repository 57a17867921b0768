"""One message: what it is, why it is not delivered, its complete history, and what can be done with it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec
from starlette.responses import Response

from tarry.core import limits
from tarry.core.dead_letters.redrive import DeadFilter
from tarry.core.errors import InvalidInput
from tarry.core.journal.events import Event, EventKind, JournalLevel
from tarry.core.journal.history import Phase, history
from tarry.core.journal.replay import BEGINS
from tarry.core.messages.edits import Edit
from tarry.core.messages.explain import Why, why_not_delivered
from tarry.core.messages.model import Counted, DeadLetter, StoredMessage
from tarry.core.messages.outcomes import Edited
from tarry.core.messages.states import State
from tarry.core.rollups.model import RollupWindow
from tarry.core.search.hits import trace_id
from tarry.core.search.query import Period, Search, Span
from tarry.core.security.api_keys import Action
from tarry.core.settings import QueueInfo
from tarry.edges.dashboard import commands
from tarry.edges.dashboard.audits import done_to, operators, paused_by
from tarry.edges.dashboard.commands import Commands, message_path
from tarry.edges.dashboard.error_diff import compared
from tarry.edges.dashboard.listing import whole
from tarry.edges.dashboard.screen import Page, View
from tarry.edges.dashboard.screens.absent_message import absent
from tarry.edges.dashboard.screens.anomalies import related
from tarry.edges.dashboard.screens.dead import releases_at, releases_since
from tarry.edges.dashboard.screens.messages import screen, sub_state
from tarry.edges.dashboard.screens.past import Archived, archived
from tarry.edges.dashboard.timeline import drawing
from tarry.edges.formats import moment
from tarry.edges.http.problems import Problem
from tarry.wire.events import LiveEvent
from tarry.wire.ids import MessageId

EVENTS = 1_000
_LATELY = timedelta(minutes=15)
_TARGETS = 200
_BEGINS = BEGINS | {EventKind.CRON_PLANNED}
_VIEWS = ("timeline", "compact", "raw")
_EDITED = {
    Edited.LEASED: "a consumer has leased it: nothing was changed. Wait until it is settled",
    Edited.CHANGED: "it has changed since this page was made: nothing was changed. Look at it again",
    Edited.GONE: "it is no longer live: nothing was changed",
}


class Body(NamedTuple):
    payload: bytes
    content_type: str | None
    type: str | None
    priority: int


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
    archive: Archived | None = None
    """What the archive has of it, if the journal has not all."""

    @property
    def stored(self) -> StoredMessage[bytes] | DeadLetter[bytes] | None:
        return self.live or self.dead

    @property
    def ended(self) -> Event | None:
        return self.events[-1] if self.events and self.stored is None else None

    @property
    def body(self) -> Body | None:
        """Of a message that is gone: as the journal or the archive has it, for queues whose journal has payloads."""
        if (stored := self.stored) is not None:
            return Body(stored.payload, stored.content_type, stored.type, stored.priority)
        for event in reversed(self.events):
            if event.payload is not None:
                detail = event.detail or {}
                return Body(event.payload, detail.get("content_type"), detail.get("type"), event.priority or 0)
        return None


@screen.page("/queues/{queue}/messages/{key:path}")
async def message(view: View) -> Page:
    return await _page(view, view.path["queue"], view.path["key"])


@screen.page("/queues/{queue}/message")
async def message_by_query(view: View) -> Page:
    return await _page(view, view.path["queue"], view.query.get("key", ""))


@screen.page("/queues/{queue}/message/payload")
async def payload(view: View) -> Response:
    """The whole payload as a file: its own bytes if it is text in which no rule hides anything, else what the page shows."""
    queue, key = view.path["queue"], limits.check_key(view.query.get("key", ""))
    body = (await _inspect(view, await view.app.queues.get(queue), key)).body
    if body is None:
        raise Problem(404, "not_found", f"queue {queue} has no payload of message {key!r:.100}")
    shown = view.redaction.payload(body.payload, body.content_type, len(body.payload))
    name = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in key)[:80]
    headers = {"content-disposition": f'attachment; filename="{name}.{"json" if shown.is_json else "txt"}"'}
    content = shown.text.encode() if shown.hidden or not _is_text(body.payload) else body.payload
    return Response(content, headers=headers, media_type="application/octet-stream")


def _is_text(payload: bytes) -> bool:
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True


async def _page(view: View, queue: str, key: str) -> Page:
    limits.check_key(key)
    info = await view.app.queues.get(queue)
    inspected = await _inspect(view, info, key)
    if inspected.stored is None and not inspected.events:
        hint = "search for a part of its key"
        if info.settings.journal is JournalLevel.OFF:
            hint = "the journal of this queue is off"
        elif inspected.archive is not None and inspected.archive.refusal:
            hint = f"the archive was not read: {inspected.archive.refusal}"
        return absent(view, info, key, hint)
    redaction = view.redaction
    past = history(inspected.events, view.now)
    known = await releases_since(view, past.attempts[0].leased_at) if past.attempts else {}
    body = inspected.body
    shown = None if body is None else redaction.payload(body.payload, body.content_type)
    is_copied = shown is not None and shown.is_json and not shown.hidden and not shown.cut
    chosen = view.query.get("view", _VIEWS[0])
    folded = _folded(inspected.events)
    audits = await done_to(view, queue, key)
    actors = operators(audits, inspected.events)
    steps = [
        {
            "event": event,
            "times": times,
            "since": None if before is None else event.at - before.at,
            "facts": [*_facts(event), *([f"by the operator {actors[event.id]}"] if event.id in actors else [])],
            "error": None if event.error is None else redaction.text(event.error),
        }
        for before, (event, times) in zip([None, *(event for event, _ in folded)], folded, strict=False)
    ]
    return view.page(
        "messages/message.html",
        key,
        topics=("messages", "clock"),
        inspected=inspected,
        info=info,
        why=await _why(view, inspected, info),
        paused_by=await paused_by(view, {queue: info.paused_at} if info.paused_at else {}),
        history=past,
        drawn=drawing(past),
        totals={phase: past.total(phase) for phase in Phase},
        steps=steps,
        is_cut=len(inspected.events) == EVENTS,
        chosen=chosen if chosen in _VIEWS else _VIEWS[0],
        views=_VIEWS,
        raw=_raw(view, inspected.events) if chosen == "raw" else "",
        body=body,
        payload=shown,
        headers={name: redaction.value({name: value})[name] for name, value in (_headers(inspected) or {}).items()},
        error=None if _error(inspected) is None else redaction.text(_error(inspected) or ""),
        trace=_trace(view, inspected),
        attempt_errors=compared([(attempt.number, redaction.text(attempt.error or "")) for attempt in past.attempts]),
        releases=[releases_at(known, attempt.consumer, attempt.leased_at) for attempt in past.attempts],
        anomalies=related(view, queue, [key]),
        lineage=await _lineage(view, inspected),
        audits=audits,
        sub_state=sub_state,
        commands=_commands(view, inspected)._replace(pytest=_fixture(queue, body) if is_copied and body else None),
        actions=_actions(view, inspected.live) if inspected.live else {},
        again=_again(view, queue, body.payload.decode()) if is_copied and body else None,
        archive=inspected.archive
        if inspected.archive and (inspected.archive.files or inspected.archive.refusal)
        else None,
        acts=inspected.live is not None and view.may("produce", queue),
        targets=[name for name in await view.queues(Action.PRODUCE) if name != queue][:_TARGETS]
        if inspected.live is not None and view.may("admin", queue)
        else [],
    )


async def _inspect(view: View, info: QueueInfo, key: str) -> Inspected:
    store, queue = view.app.store, info.name
    live = await view.run(store.messages.read(queue, key))
    events = await view.run(store.journal.timeline(queue, key, limit=EVENTS))
    dead = None
    if live is None or "version" in view.query:
        dead = await _dead(view, queue, key, events)
    if dead is not None and "version" in view.query:
        live = None
    archive = None
    is_whole = bool(events) and (events[0].kind in _BEGINS or len(events) == EVENTS)
    if info.settings.journal is not JournalLevel.OFF and not is_whole:
        archive = await _before_the_journal(view, queue, key)
        events = [*reversed(archive.rows), *events] if archive else events
    state = live.state if live else State.DEAD if dead else None
    if state is None and events and events[-1].kind is EventKind.ACKED:
        state = State.DONE
    return Inspected(queue=queue, key=key, state=state, live=live, dead=dead, events=events, archive=archive)


async def _before_the_journal(view: View, queue: str, key: str) -> Archived | None:
    """Events of a message whose beginning the journal no longer has."""
    since = await view.run(view.app.store.search.journal_since())
    return None if since is None else await archived(view, queue, None, since, EVENTS, key=key)


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
    workers = await view.run(store.workers.list())
    if message.state is not State.READY:
        return why_not_delivered(message, info, view.now, workers)
    await view.dashboard.roll_ups.fresh()
    same = Search(
        state=State.READY, priority=Span(message.priority, message.priority), due=Period(None, message.due_at)
    )
    ahead = (await view.run(store.search.messages(same, [info.name], limit=0))).matching
    if message.priority < 9:
        above = Search(state=State.READY, priority=Span(message.priority + 1, 9))
        more = (await view.run(store.search.messages(above, [info.name], limit=0))).matching
        ahead = Counted(ahead.n + more.n, ahead.capped or more.capped)
    window = RollupWindow(timedelta(minutes=1), view.now - _LATELY, view.now, info.name)
    slices = await view.run(store.rollups.consumers(window))
    return why_not_delivered(message, info, view.now, workers, ahead=ahead, consumers=len(slices))


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


def _trace(view: View, inspected: Inspected) -> tuple[str, str | None] | None:
    """The id of its trace, and where that is shown."""
    id, shown_at = trace_id(_headers(inspected)), view.dashboard.settings.trace_url
    if id is None:
        return None
    return id, shown_at and shown_at.replace("{trace}", quote(id, safe=""))


def _error(inspected: Inspected) -> str | None:
    if inspected.live is not None:
        return inspected.live.last_error
    return None if inspected.dead is None else inspected.dead.error


def _folded(events: Sequence[Event]) -> list[tuple[Event, int]]:
    """Heartbeats in a row as the last of them, with their number; other events as they are."""
    folded: list[tuple[Event, int]] = []
    for event in events:
        last, times = folded[-1] if folded else (None, 0)
        if last and event.kind is last.kind is EventKind.TOUCHED and event.consumer == last.consumer:
            folded[-1] = event, times + 1
        else:
            folded.append((event, 1))
    return folded


def _facts(event: Event) -> list[str]:
    """What an event changed, in words."""
    facts: list[str] = []
    if event.attempt and event.kind in (EventKind.LEASED, EventKind.NACKED, EventKind.ACKED, EventKind.BURIED):
        facts.append(f"attempt {event.attempt}")
    if event.consumer:
        facts.append(f"by {event.consumer}")
    if event.kind in (EventKind.LEASED, EventKind.TOUCHED) and event.lease_until:
        facts.append(f"leased until {event.lease_until:%H:%M:%S} UTC")
    elif event.due_at and event.kind not in (EventKind.ACKED, EventKind.BURIED, EventKind.DROPPED):
        facts.append(f"due {event.due_at:%Y-%m-%d %H:%M:%S} UTC")
    if event.size is not None:
        facts.append(f"{event.size:,} bytes")
    for name, value in (event.detail or {}).items():
        if name not in ("headers", "content_type"):
            facts.append(f"{name.replace('_', ' ')}: {_fact(value)}")
    return [fact[:200] for fact in facts]


def _fact(value: Any) -> Any:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):  # pyright: ignore[reportUnknownVariableType]
        return " and ".join(value)  # pyright: ignore[reportUnknownArgumentType]
    return json.dumps(value) if isinstance(value, (list, dict)) else value


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
    """What the dialogs do: of this version of the message only; if it is leased, its consumer loses the lease."""
    queue, key, version = live.queue, live.key, live.version
    url, seen = view.api("messages", str(MessageId(queue, key))), {"version": str(version)}
    is_leased = live.state is State.LEASED
    forced: dict[str, str] = {"force": "true"} if is_leased else {}
    flag, keyword = (("--force",), ", force=True") if is_leased else ((), "")
    kept, kept_flag, kept_keyword = (
        ({}, (), "") if is_leased else ({"unless_leased": "true"}, ("--unless-leased",), ", unless_leased=True")
    )

    def edit(body: dict[str, Any], call: str, *words: str) -> Commands:
        changed = f"edit({key!r}, {call}, version={version}{keyword})"
        return Commands(
            curl=commands.curl(url, "PATCH", body, {**seen, **forced}),
            cli=commands.cli("message", "edit", queue, key, *words, "--version", str(version), *flag),
            python=commands.python(f"print(app.queue({queue!r}).{changed})"),
        )

    bury = f"app.store.run(app.store.messages.bury_by_key({queue!r}, {key!r}, error='why', version={version}{keyword}))"
    fields = {"key": key, **seen, **({"force": "1"} if is_leased else {})}

    def form(verb: str, **more: str) -> str:
        return commands.form(view.form_url("queues", queue, "message", verb), {**fields, **more})

    redrive = f"app.queue({queue!r}).dead_letters.start_redrive(versions=[{version}], target='other')"
    return {
        "deliver": edit({"after": "0s"}, "after=timedelta(0)", "--after", "0s"),
        "move": Commands(
            curl=form("move", target="other"), python=commands.python(f"print({bury})", f"{redrive}.advance()")
        ),
        "reschedule": edit({"after": "10m"}, "after=timedelta(minutes=10)", "--after", "10m"),
        "edit": edit({"priority": live.priority}, f"priority={live.priority}", "--priority", str(live.priority)),
        "bury": Commands(curl=form("bury", error="why"), python=commands.python(f"print({bury})")),
        "drop": Commands(
            curl=commands.curl(url, "DELETE", query={**seen, **kept}),
            cli=commands.cli("message", "drop", queue, key, "--version", str(version), *kept_flag),
            python=commands.python(f"print(app.queue({queue!r}).drop({key!r}, version={version}{kept_keyword}))"),
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


def _fixture(queue: str, of: Body) -> str:
    """The message as the only one of an app in memory: `tarry.testing.drain(worker, app)` handles it."""
    how = "".join(f", {name}={value!r}" for name, value in (("type", of.type), ("priority", of.priority)) if value)
    return "\n".join(
        (
            "import pytest",
            "from tarry import testing",
            "",
            "@pytest.fixture",
            "def app():",
            "    with testing.memory_app() as app:",
            f"        app.queue({queue!r}).offer('example', {_literal(of.payload.decode())}{how})",
            "        yield app",
        )
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
    before = {"priority": current.priority, "type": current.type, "max_attempts": current.own_max_attempts}
    words = [f"{name} from {before[name]} to {value}" if name in before else name for name, value in values.items()]
    return await _edit(view, Edit(named=frozenset(values), **values, **more), f"is changed: {', '.join(words)}")


@screen.form("/queues/{queue}/message/release", Action.PRODUCE, "release a message")
async def release(view: View) -> Response:
    """Its consumer loses the lease, and the attempt does not count."""
    return await _edit(view, Edit(named=frozenset({"due_at"}), after=timedelta(0)), "is released, and due now")


@screen.form("/queues/{queue}/message/bury", Action.PRODUCE, "bury a message")
async def bury(view: View) -> Response:
    await _bury(view, view.form.get("error", "").strip() or None)
    return view.done(f"{view.form['key']} is buried", message_path(view.path["queue"], view.form["key"]))


@screen.form("/queues/{queue}/message/drop", Action.PRODUCE, "drop a message")
async def drop(view: View) -> Response:
    queue, (key, version) = view.path["queue"], _version(view)
    drop = view.app.store.messages.drop(queue, key, version=version, unless_leased=not _is_forced(view))
    if not await view.run(drop):
        detail = "it is leased, or has changed since this page was made: nothing was changed"
        raise Problem(409, "changed", detail, hint="look at it again")
    return view.done(f"{key} is dropped", message_path(queue, key))


@screen.form("/queues/{queue}/message/move", Action.ADMIN, "move a message")
async def move(view: View) -> Response:
    """By its dead letter, which is redriven to the other queue: whatever fails, the message is in one place, and not lost."""
    queue, (key, version) = view.path["queue"], _version(view)
    target = limits.check_queue_name(view.form.get("target", "").strip())
    view.visitor.require(Action.PRODUCE, target)
    await view.app.queues.get(target)
    if target == queue:
        raise InvalidInput(f"it is in {queue} already: choose another queue")
    if await view.app.queue(target).contains(key):
        detail = f"{target} has a live message of this key: nothing was changed"
        raise Problem(409, "conflict", detail, hint=f"drop that one first, or bury this one: {key!r:.100}")
    await _bury(view, f"moved to {target}")
    letters = view.app.queue(queue).dead_letters
    job = await letters.start_redrive(target=target, versions=[version], consumer=view.visitor.id)
    if (await job.advance()).redriven:
        return view.done(f"{key} is moved to {target}", message_path(target, key))
    return view.done(
        f"{key} is not moved: {target} has a live message of this key. It is a dead letter of {queue}",
        message_path(queue, key),
    )


async def _bury(view: View, error: str | None) -> None:
    queue, (key, version) = view.path["queue"], _version(view)
    bury = view.app.store.messages.bury_by_key(queue, key, error=error, version=version, force=_is_forced(view))
    _changed(await view.run(bury))


async def _edit(view: View, edit: Edit, done: str) -> Response:
    queue, (key, version) = view.path["queue"], _version(view)
    _changed(await view.run(view.app.store.messages.edit(queue, key, edit, version=version, force=_is_forced(view))))
    return view.done(f"{key} {done}", message_path(queue, key))


def _changed(outcome: Edited) -> None:
    if outcome in _EDITED:
        raise Problem(409, outcome.value, _EDITED[outcome])


def _is_forced(view: View) -> bool:
    """Whether the page showed a leased message, so that its consumer is to lose it."""
    return view.form.get("force") == "1"


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
