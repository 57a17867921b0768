"""Messages: one search box over live, dead and finished ones, and actions on what was found."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from urllib.parse import urlencode

import msgspec
from starlette.responses import Response

from tarry.core.errors import InvalidInput
from tarry.core.messages.model import MessagePosition, StoredMessage
from tarry.core.messages.states import LIVE, State
from tarry.core.search.bulk import IDLE_FOR, BulkJob, Verb
from tarry.core.search.hits import Hit
from tarry.core.search.query import EVER, LONGEST, QUALIFIERS, Search, parse, quoted, without
from tarry.core.security.api_keys import Action
from tarry.core.settings import QueueInfo
from tarry.edges.dashboard import commands
from tarry.edges.dashboard.commands import Commands, message_path, path
from tarry.edges.dashboard.listing import Column, Listing, whole
from tarry.edges.dashboard.narrower import Narrower, of_each_queue
from tarry.edges.dashboard.screen import Page, Screen, View
from tarry.edges.http.problems import Problem
from tarry.services.bulk import SeenMessage, apply
from tarry.services.search import EVENTS, FIRST, READ, Hits, Start, find
from tarry.wire.ids import POSITION, parse_position, position_text

screen = Screen("messages", "Messages", "/messages", shortcut="m", icon="messages")
DONE_BY = {Verb.DELIVER: "made due now", Verb.BURY: "buried", Verb.DROP: "dropped"}
_STATES = ("delayed", "ready", "leased", "dead", "done")
_SHOWN = ("queue", "state", "at", "attempt", "priority", "type", "consumer", "error")
"""Columns of the table unless others are chosen: `?columns=queue,at,version`. That of keys is always there."""
_INDEXED = ("", "key", "queue", "state", "due", "priority")
"""Qualifiers that an index answers; by the others each message is read."""
_NOTHING = Hits(rows=[], scanned=0, complete=True)


def sub_state(message: Hit | StoredMessage[bytes], info: QueueInfo | None, now: datetime) -> str | None:
    """What the state of a live message does not show."""
    if message.state is State.READY and info is not None and info.paused:
        return "paused"
    if message.state is State.READY and info is not None and now - message.due_at > info.settings.target_lag_for:
        return "late"
    return "retrying" if message.attempt and message.state in (State.DELAYED, State.READY) else None


def _narrower(view: View) -> list[Narrower]:
    """The search without what must be read of each message, in one queue, of an hour, or in the archive."""
    try:
        search = parse(view.query.get("q", "").strip(), view.now)
    except InvalidInput:
        return []

    def link(*terms: str) -> str:
        return view.here(q=" ".join(terms), after=None)

    indexed = [term.text for term in search.terms if term.name in _INDEXED]
    texts = [term.text for term in search.terms]
    read = [text for text in texts if text not in indexed]
    links = [Narrower(f"without {' '.join(read)}", link(*indexed))] if read else []
    if search.queue is None:
        links += of_each_queue(view, lambda name: link(f"queue:{quoted(name)}", *texts))
    if search.due == EVER and search.keys is None and search.state not in (State.DEAD, State.DONE):
        links.append(Narrower("due within the next hour", link(*texts, "due:>now", "due:<+1h")))
    if archived := _archived(search):
        links.append(Narrower("in the archive", view.url("/archive", queue=search.queue, sql=archived)))
    return links


@screen.page("/messages", narrower=_narrower)
async def messages(view: View) -> Page:
    text = view.query.get("q", "").strip()
    infos = {info.name: info for info in await view.app.queues.list() if view.sees(info.name)}
    names = [*infos]
    search, hits, problem = Search(), _NOTHING, None
    try:
        search = parsed(view, text)
        hits = await find(view.app.store, search, names, limit=view.limit, start=_start(view, search))
    except InvalidInput as error:
        if view.format != "html":
            raise
        problem = error

    def sub_state_of(row: Hit) -> str | None:
        return sub_state(row, infos.get(row.queue), view.now)

    columns, chosen = _columns(view, search.state), view.query.get("columns")
    names_shown = _SHOWN if chosen is None else tuple(chosen.split(","))
    shown = [column for column in columns if column.name in ("key", *names_shown)]
    page = view.page(
        "messages/messages.html",
        "Messages",
        topics=() if problem else ("messages", "clock"),
        listing=Listing(
            columns=columns if chosen is None else shown, rows=hits.rows, next=_next(hits), name="messages"
        ),
        shown=shown,
        columns=[
            (column.label, column in shown, _with_column(columns, names_shown, column.name))
            for column in columns[1:]
            if column.name != "due_at" or search.state in (State.DEAD, State.DONE)  # of others it is `at`
        ],
        hits=hits,
        search=search,
        text=text,
        problem=problem,
        chips=[(term, without(search, term)) for term in search.terms],
        states=[(name, _with_state(search, name)) for name in _STATES],
        counts=await view.app.queues.counts(search.queue, limit=1_000) if search.queue in names else None,
        sentence=_sentence(search, hits, names),
        archived=_archived(search) if view.may("read") else None,
        suggestions=_suggestions(names),
        longest=LONGEST,
        acts=search.state in (None, *LIVE) and view.may("produce", search.queue),
        seen=_seen_text,
        sub_state=sub_state_of,
        shown_error=view.redaction.text,
        qualifiers=QUALIFIERS,
        commands=_commands(view, search, text),
        start=Commands(
            curl=commands.form(view.form_url("messages", "apply"), {"verb": "deliver", "scope": "all", "q": text}),
            python=commands.python(
                "verb = tarry.core.search.bulk.Verb.DELIVER",
                f"start = app.store.search.start_bulk(verb, {text!r}, {names[:20]!r}, started_by='me')",
                "print(app.store.run(start))  # a sweeper runs it",
            ),
        ),
        jobs=[job for job in await view.run(view.app.store.search.bulk_jobs()) if job.is_running and _shows(view, job)],
        first=Commands(
            curl=commands.curl(
                view.api("queues", "hello", "messages"), "POST", {"payload": {"hi": "there"}, "after": "1h"}
            ),
            cli=commands.cli("offer", "hello", '{"hi": "there"}', "--after", "1h"),
        ),
    )
    return replace(page, status=422) if problem else page


@screen.form("/messages/apply", Action.PRODUCE, "change messages")
async def apply_to_messages(view: View) -> Response:
    """Of selected rows, or of all that match."""
    form = view.form
    try:
        verb = Verb(form.get("verb", ""))
    except ValueError:
        raise InvalidInput(f"verb must be one of {', '.join(Verb)}") from None
    back = f"/messages?{urlencode({'q': form.get('q', '')})}"
    error = form.get("error", "").strip() or None
    if form.get("scope") != "all":
        return await _apply_to_selected(view, verb, error, back)
    if verb is not Verb.DELIVER and form.get("confirm") != verb:
        raise InvalidInput(f"type {verb} to {verb} all that match: nothing was changed")
    search = parsed(view, form.get("q", ""))
    if search.state not in (None, *LIVE):
        raise InvalidInput("only live messages can be changed here", hint="redrive or discard dead letters instead")
    names = await view.queues(Action.PRODUCE)
    job = await view.dashboard.bulk.start(verb, form.get("q", ""), names, by=view.visitor.id, error=error)
    return view.done(f"job {job.id} has started", job_path(job))


async def _apply_to_selected(view: View, verb: Verb, error: str | None, back: str) -> Response:
    seen_messages = [_seen(value) for name, value in view.form.items() if name.startswith("row-")]
    if not seen_messages:
        raise InvalidInput("no message is selected: nothing was changed", hint="select rows, or choose all that match")
    for seen in seen_messages:
        view.visitor.require(Action.PRODUCE, seen.queue)
    changed = 0
    for seen in seen_messages:
        changed += await apply(view.app.store, verb, seen, error=error)
    skipped = len(seen_messages) - changed
    rest = f"; {skipped:,} not, because they had changed or are leased" if skipped else ""
    return view.done(f"{changed:,} of {len(seen_messages):,} were {DONE_BY[verb]}{rest}", back)


@screen.page("/messages/jobs")
async def bulk_jobs(view: View) -> Page:
    jobs = await view.run(view.app.store.search.bulk_jobs(limit=min(view.limit, MOST_JOBS)))
    listing = Listing(columns=_JOB_COLUMNS, rows=[job for job in jobs if _shows(view, job)], name="jobs")
    copied = Commands(curl=commands.curl(view.absolute(view.url("/messages/jobs.json"))))
    return view.page("messages/bulk_jobs.html", "Jobs", topics=("clock", "messages"), listing=listing, commands=copied)


@screen.page("/messages/jobs/{job}")
async def bulk_job(view: View) -> Page:
    job = await _job(view)
    return view.page(
        "messages/bulk_job.html",
        f"Job {job.id}",
        topics=("clock", "messages"),
        job=job,
        done_by=DONE_BY[job.verb],
        is_idle=job.is_running and job.updated_at < view.now - IDLE_FOR,
        commands=Commands(
            curl=commands.form(view.form_url("messages", "jobs", str(job.id), "cancel"), {}),
            python=commands.python(
                "bulk = tarry.core.search.bulk",
                "cancelled = bulk.BulkProgress(state=bulk.BulkState.CANCELLED)",
                f"print(app.store.run(app.store.search.save_bulk({job.id}, cancelled)))",
            ),
        ),
    )


@screen.form("/messages/jobs/{job}/cancel", Action.PRODUCE, "cancel a job")
async def cancel_bulk_job(view: View) -> Response:
    job = await _job(view)
    for queue in job.queues:
        view.visitor.require(Action.PRODUCE, queue)
    await view.dashboard.bulk.cancel(job.id)
    return view.done(f"job {job.id} is cancelled", job_path(job))


def job_path(job: BulkJob) -> str:
    return path("messages", "jobs", str(job.id))


MOST_JOBS = 200
_JOB_COLUMNS = (
    Column("id", "Job", "number", href=job_path),
    Column("verb", "Action", value=lambda job: job.verb.value),
    Column("query", "Query", "code", value=lambda job: job.query or "all live messages"),
    Column("state", "State", value=lambda job: job.state.value),
    Column("changed", "Changed", "number"),
    Column("skipped", "Left out", "number", hide_small=True),
    Column("started_by", "By", hide_small=True),
    Column("created_at", "Started", "time", hide_small=True),
    Column("ended_at", "Ended", "time", hide_small=True),
)


def parsed(view: View, text: str) -> Search:
    search = parse(text, view.now)
    for term in search.payload:
        if any(view.redaction.hides(name) for name in term.path):
            raise InvalidInput(f"payload.{'.'.join(term.path)}: is hidden here, so it cannot be searched")
    return search


async def _job(view: View) -> BulkJob:
    text = view.path["job"]
    jobs = await view.run(view.app.store.search.bulk_jobs(job=whole(text) or 0, limit=1))
    if not jobs or not _shows(view, jobs[0]):
        raise Problem(404, "unknown_job", f"there is no job {text[:20]}")
    return jobs[0]


def _shows(view: View, job: BulkJob) -> bool:
    return all(view.sees(queue) for queue in job.queues)


def _start(view: View, search: Search) -> Start:
    after = view.query.get("after")
    if after is None:
        return FIRST
    if search.state is State.DONE:
        return Start(done=after)
    if not re.fullmatch(POSITION, after):
        raise InvalidInput("after: this is not the `next` of a page")
    return Start(live=parse_position(after))


def _next(hits: Hits) -> str | None:
    if hits.next_dead is not None:
        return position_text(MessagePosition(*hits.next_dead))
    return hits.next_done if hits.next_live is None else position_text(hits.next_live)


def _columns(view: View, state: State | None) -> Sequence[Column]:
    when = {State.DEAD: "Died", State.DONE: "Acked"}.get(state) if state else None
    return (
        Column("key", "Key", "code", href=lambda row: message_path(row.queue, row.key)),
        Column("queue", "Queue"),
        Column("state", "State", "state", value=lambda row: row.state.value),
        Column("at", when or "Due", "time"),
        Column("attempt", "Attempts", "number"),
        Column("priority", "Priority", "number", hide_small=True),
        Column("type", "Type", hide_small=True),
        Column("consumer", "Consumer", hide_small=True),
        Column("error", "Last error", value=lambda row: _error(view, row), hide_small=True),
        Column("due_at", "Due", "time"),
        Column("created_at", "Created", "time"),
        Column("lease_until", "Leased until", "time"),
        Column("version", "Version", "number"),
    )


def _with_column(columns: Sequence[Column], shown: Sequence[str], name: str) -> str | None:
    """The value of `columns` with this one, or without it if it is shown; None: it is the usual one."""
    names = tuple(column.name for column in columns if (column.name in shown) != (column.name == name))
    return None if names == _SHOWN else ",".join(names) or "key"


def _error(view: View, row: Hit) -> str | None:
    return None if row.error is None else view.redaction.text(row.error)


def _with_state(search: Search, name: str) -> str | None:
    """The query with this state, or without it if it has it; None where it is the current one."""
    others = [term.text for term in search.terms if term.name != "state"]
    is_current = search.state is not None and search.state.value == name
    return " ".join(others if is_current else [*others, f"state:{name}"])


def _sentence(search: Search, hits: Hits, queues: Sequence[str]) -> str:
    """What was looked through, and what was not."""
    where = f"queue {search.queue}" if search.queue else f"{len(queues):,} queue{'' if len(queues) == 1 else 's'}"
    if search.queue and search.queue not in queues:
        return f"There is no queue named {search.queue}."
    if search.state is State.DONE:
        span = (
            "All of its history in the journal was read."
            if search.key and search.queue
            else (
                f"A page reads the newest {EVENTS:,} acks of the journal; older ones are on the next, or in the archive."
            )
        )
        return f"Finished messages of {where}. {span}"
    if search.state is State.DEAD:
        more = "" if hits.complete else f" Each page reads {READ:,}; the next page goes on."
        return f"{hits.scanned:,} dead letters of {where} were read, the newest first.{more}"
    if search.payload:
        more = "" if hits.complete else f" Each page reads {READ:,} payloads of at most 64 KiB; the next page goes on."
        return f"{hits.scanned:,} payloads of live messages in {where} were read.{more}"
    scanned = f"{hits.scanned:,} live message{'' if hits.scanned == 1 else 's'} of {where} were scanned"
    if hits.complete or (hits.matching is not None and not hits.matching.capped):
        return f"{scanned}: all that there are{'' if search == Search() else ' for this search'}."
    if search.keys is not None:
        return f"{scanned}, which is the limit: a longer key finds more."
    return f"{scanned}, those due first. The next page goes on from there."


def _archived(search: Search) -> str | None:
    """The SQL that finds these messages in the archive, where they are after they have ended."""
    if search.key is not None:
        which = f"key = {_literal(search.key)}"
    elif search.key_prefix is not None:
        which = f"starts_with(key, {_literal(search.key_prefix)})"
    elif search.state is State.DONE:
        which = "kind = 'acked'"
    else:
        return None
    return f"select at, kind, key, consumer, error from events where {which} order by id desc"  # noqa: S608 - quoted; DuckDB reads files alone


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _suggestions(names: Sequence[str]) -> str:
    values: Mapping[str, Sequence[str]] = {
        "queue": names[:200],
        "state": _STATES,
        "attempts": (">0", ">3"),
        "priority": (">=5",),
        "lag": (">1s", ">30s", ">5m"),
        "due": ("<now", "<+1h", ">+1h", "<-1m"),
        "created": (">-1h", ">-24h", "<-1d"),
        "error": ("~timeout",),
    }
    return msgspec.json.encode({name: values.get(name, ()) for name in QUALIFIERS}).decode()


def _seen_text(hit: Hit) -> str:
    return msgspec.json.encode([hit.queue, hit.key, hit.version]).decode()


def _seen(text: str) -> SeenMessage:
    try:
        return SeenMessage(*msgspec.json.decode(text, type=tuple[str, str, int]))
    except (msgspec.DecodeError, msgspec.ValidationError):
        raise InvalidInput("a selected row cannot be read: reload the page") from None


def _commands(view: View, search: Search, text: str) -> Commands:
    words: list[str] = ["message", "list", search.queue] if search.queue else []
    if words and search.state in LIVE:
        words += ["--state", search.state.value]
    return Commands(
        curl=commands.curl(view.absolute(view.url("/messages.json", q=text))),
        cli=commands.cli(*words) if words else None,
        python=commands.python(
            "now = app.store.run(app.store.queues.now())",
            f"search = tarry.core.search.query.parse({text!r}, now)",
            f"found = app.store.run(app.store.search.messages(search, {[search.queue] if search.queue else []!r}))",
        )
        if search.queue
        else None,
    )
