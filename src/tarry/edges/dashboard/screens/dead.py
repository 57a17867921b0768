"""Dead letters: groups by error, a group, the list, a letter, and discarding."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from starlette.responses import Response

from tarry.core.dead_letters.facets import Facet, facets
from tarry.core.dead_letters.redrive import DeadFilter, DeadGroup, DeadPosition
from tarry.core.messages.model import Counted, DeadLetter, MessagePosition
from tarry.core.security.api_keys import Action
from tarry.core.workers.model import RELEASE_NOTED_EVERY, WorkerRelease, releases_of
from tarry.edges.dashboard.commands import path
from tarry.edges.dashboard.listing import Column, Listing
from tarry.edges.dashboard.narrower import filtered_by_queue, shorter_ranges
from tarry.edges.dashboard.redaction import HIDDEN
from tarry.edges.dashboard.screen import Page, Screen, View
from tarry.edges.dashboard.screens import dead_choice
from tarry.edges.dashboard.screens.anomalies import related
from tarry.edges.dashboard.screens.dead_choice import choice, query_of, words
from tarry.edges.http.pages import bounded
from tarry.edges.http.problems import Problem
from tarry.wire.ids import parse_position, position_text

screen = Screen("dead", "Dead letters", "/dead", shortcut="d", icon="dead")

MOST_QUEUES = 20
"""Queues whose groups a page shows: those with the most dead letters."""
COUNTED_TO = 10_000
SAMPLE = 200
"""Dead letters of a group that facets are computed from."""
SAMPLE_BYTES = 1024 * 1024
EXAMPLES = 10
_DEATHS_S = 5.0
"""How long the sparklines of groups are remembered; their counts are not."""
_LIST_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    queue: str
    group: DeadGroup
    deaths: Sequence[int]
    """In each point of the time range."""
    consumers: Sequence[str]
    releases: Sequence[str]
    """That these consumers ran then."""

    @property
    def path(self) -> str:
        return group_path(self.queue, self.group.fingerprint)

    @property
    def position(self) -> str:
        return f"{self.queue}/{self.group.fingerprint}"


def list_path(queue: str) -> str:
    return path("queues", queue, "dead")


def group_path(queue: str, fingerprint: str) -> str:
    return path("queues", queue, "dead", "groups", fingerprint)


def letter_path(queue: str, version: int) -> str:
    return path("queues", queue, "dead", "letters", str(version))


@screen.page("/dead", narrower=filtered_by_queue)
async def groups(view: View) -> Page:
    store = view.app.store
    await view.dashboard.roll_ups.fresh()
    standings = await view.run(store.rollups.standings(limit=100))
    dead = {
        standing.queue: standing.dead for standing in standings if standing.counts.dead.n and view.sees(standing.queue)
    }
    named = view.query.get("queue") or None
    queues = [name for name in dead if named in (None, name)]
    chosen = sorted(queues, key=lambda name: (-dead[name].n, name))[:MOST_QUEUES]
    known = await releases_since(view, view.range.since)
    rows = [row for queue in chosen for row in await _group_rows(view, queue, known)]
    by_count = view.query.get("sort") == "count"
    rows.sort(key=lambda row: row.group.last_died_at, reverse=True)
    if by_count:
        rows.sort(key=lambda row: row.group.count.n, reverse=True)
    after = view.query.get("after")
    first = next((at + 1 for at, row in enumerate(rows) if row.position == after), 0)
    page = rows[first : first + view.limit]
    hidden = view.redaction.text
    columns = (
        Column("queue", "Queue"),
        Column("fingerprint", "Group", value=lambda row: row.group.fingerprint),
        Column("error", "Error", value=lambda row: hidden(row.group.error or row.group.pattern)),
        Column("reason", "Reason", value=lambda row: row.group.reason),
        Column("count", "Count", "number", value=lambda row: row.group.count),
        Column("first_died_at", "First", "time", value=lambda row: row.group.first_died_at),
        Column("last_died_at", "Last", "time", value=lambda row: row.group.last_died_at),
        Column("types", "Types", value=lambda row: row.group.types),
        Column("consumers", "Consumers", value=lambda row: row.consumers),
        Column("releases", "Releases", value=lambda row: row.releases),
        Column("deaths", "Deaths", value=lambda row: row.deaths),
        Column("example", "Example", value=lambda row: row.group.example),
    )
    jobs = await view.run(store.dead_letters.redrive_jobs(limit=50))
    return view.page(
        "dead_letters/groups.html",
        "Dead letters",
        topics=("dead", "clock"),
        listing=Listing(
            columns=columns,
            rows=page,
            next=page[-1].position if page and first + len(page) < len(rows) else None,
            name="groups",
        ),
        total=Counted(sum(dead[name].n for name in queues), any(dead[name].capped for name in queues)),
        queues=queues,
        dead=dead,
        count=len(rows),
        left_out=len(queues) - len(chosen),
        lately=sum(sum(row.deaths) for row in rows),
        by_count=by_count,
        named=named,
        jobs=[job for job in jobs if not job.ended and view.sees(job.queue)],
        commands=dead_choice.grouped(view, chosen or [named or "orders"]),
    )


async def releases_since(view: View, since: datetime) -> dict[str, list[WorkerRelease]]:
    """Which releases consumers ran since then, by consumer."""
    known: defaultdict[str, list[WorkerRelease]] = defaultdict(list)
    reported = since - 2 * RELEASE_NOTED_EVERY  # the last report before it
    for row in await view.run(view.app.store.workers.releases(reported)):
        known[row.consumer].append(row)
    return known


def releases_at(known: Mapping[str, Sequence[WorkerRelease]], consumer: str | None, at: datetime) -> list[str]:
    return [] if consumer is None else releases_of(known.get(consumer, ()), consumer, at, at)


async def _group_rows(view: View, queue: str, known: Mapping[str, Sequence[WorkerRelease]]) -> list[GroupRow]:
    store, span = view.app.store, view.range
    own = await view.run(store.dead_letters.groups(queue, limit=100, cap=COUNTED_TO))
    deaths: defaultdict[str, Counter[datetime]] = defaultdict(Counter)
    consumers: defaultdict[str, set[str]] = defaultdict(set)
    releases: defaultdict[str, set[str]] = defaultdict(set)
    for part in await view.dashboard.remembered.get(
        ("deaths", queue, span),
        _DEATHS_S,
        lambda: store.run(store.rollups.deaths(queue, span.width, span.since, span.until)),
    ):
        consumers[part.fingerprint].update(part.consumers)
        if part.start_at is not None:
            deaths[part.fingerprint][part.start_at] += part.deaths
            for name in part.consumers:
                ran = releases_of(known.get(name, ()), name, part.start_at, part.start_at + span.width)
                releases[part.fingerprint].update(ran)
    return [
        GroupRow(
            queue=queue,
            group=group,
            deaths=[deaths[group.fingerprint][start] for start in span.starts],
            consumers=sorted(consumers[group.fingerprint]),
            releases=sorted(releases[group.fingerprint]),
        )
        for group in own
    ]


@screen.page("/queues/{queue}/dead/groups/{fingerprint}", narrower=shorter_ranges)
async def group(view: View) -> Page:
    queue, fingerprint = view.path["queue"], view.path["fingerprint"]
    where = DeadFilter.of({"fingerprint": fingerprint})
    store, redaction = view.app.store, view.redaction
    every = await view.run(store.dead_letters.groups(queue, limit=1_000, cap=1))
    summary = next((other for other in every if other.fingerprint == fingerprint), None)
    if summary is None:
        hint = "its dead letters were redriven or discarded"
        raise Problem(404, "gone", f"{queue} has no dead letters of group {fingerprint}", hint=hint)
    matching = await view.run(store.dead_letters.count(queue, where=where, limit=COUNTED_TO))
    sample, _ = await _letters(view, queue, where, None, SAMPLE, SAMPLE_BYTES)
    known = await releases_since(view, min((letter.died_at for letter in sample), default=view.now))
    deaths = Counter(
        {
            part.start_at: part.deaths
            for part in await view.run(
                store.rollups.deaths(queue, view.range.width, view.range.since, view.range.until)
            )
            if part.fingerprint == fingerprint and part.start_at is not None
        }
    )
    return view.page(
        "dead_letters/group.html",
        summary.pattern or summary.reason,
        topics=("dead", "clock"),
        queue=queue,
        group=replace(summary, count=matching.letters),
        error=redaction.text(summary.error or ""),
        blocked=matching.blocked,
        anomalies=related(view, queue, [letter.key for letter in sample]),
        where=query_of(where),
        listing=_letter_listing(view, sample[:EXAMPLES], None),
        sampled=len(sample),
        facets=_facets(view, sample),
        consumers=Counter(letter.consumer for letter in sample if letter.consumer).most_common(8),
        releases=Counter(
            release for letter in sample for release in releases_at(known, letter.consumer, letter.died_at)
        ).most_common(8),
        types=Counter(letter.type for letter in sample if letter.type).most_common(8),
        attempts=sorted(Counter(letter.attempt for letter in sample).items())[:8],
        deaths=[deaths[start] for start in view.range.starts],
        commands=dead_choice.listed(view, queue, where),
    )


def _facets(view: View, letters: Sequence[DeadLetter[bytes]]) -> list[Facet]:
    """Of payloads after redaction; what a rule hides is no facet."""
    redaction = view.redaction
    payloads = [redaction.value(_decoded(letter.payload)) for letter in letters]
    return [facet for facet in facets(payloads, limit=12) if HIDDEN not in facet.value][:8]


def _decoded(payload: bytes) -> Any:
    try:
        return json.loads(payload, parse_float=str)
    except ValueError:
        return None


@screen.page("/queues/{queue}/dead")
async def letters(view: View) -> Page:
    queue, where = view.path["queue"], choice(view)
    after = view.query.get("after")
    start = None if not after else DeadPosition(*parse_position(after))
    rows, last = await _letters(view, queue, where, start, view.limit, _LIST_BYTES)
    matching = await view.run(view.app.store.dead_letters.count(queue, where=where, limit=COUNTED_TO))
    return view.page(
        "dead_letters/dead_letters.html",
        f"Dead letters of {queue}",
        topics=("dead", "clock"),
        queue=queue,
        listing=_letter_listing(view, rows, None if last is None else position_text(MessagePosition(*last))),
        matching=matching,
        where=query_of(where),
        words=words(where),
        is_filtered=where != DeadFilter(),
        is_selective=dead_choice.is_selective(where),
        commands=dead_choice.listed(view, queue, where),
    )


async def _letters(
    view: View, queue: str, where: DeadFilter, start: DeadPosition | None, limit: int, most_bytes: int
) -> tuple[list[DeadLetter[bytes]], DeadPosition | None]:
    role = view.app.store.dead_letters
    return await bounded(
        lambda before, n: view.run(role.list(queue, where=where, limit=n, before=before)),
        lambda letter: DeadPosition(letter.died_at, letter.version),
        start=start,
        limit=limit,
        most_bytes=most_bytes,
    )


def _letter_listing(view: View, rows: Sequence[DeadLetter[bytes]], next: str | None) -> Listing:
    redaction = view.redaction
    columns = [
        Column("key", "Key", "code", href=lambda row: letter_path(row.queue, row.version)),
        Column("error", "Error", value=lambda row: redaction.text(row.error or ""), hide_small=True),
        Column("type", "Type", hide_small=True),
        Column("attempt", "Attempts", "number", hide_small=True),
        Column("consumer", "Consumer", hide_small=True),
        Column("died_at", "Died", "time"),
    ]
    if view.format != "html":
        columns += [Column(name, name) for name in ("queue", "version", "reason", "fingerprint", "due_at", "origin")]
        columns.append(Column("payload", "payload", value=lambda row: _shown(view, row)))
    return Listing(columns=columns, rows=rows, next=next, name="dead_letters")


def _shown(view: View, letter: DeadLetter[bytes]) -> str:
    return view.redaction.payload(letter.payload, letter.content_type).text


@screen.page("/queues/{queue}/dead/letters/{version}")
async def letter(view: View) -> Page:
    queue, text = view.path["queue"], view.path["version"]
    where = choice(view, {"versions": text, "selected": "1"})
    matches = await view.run(view.app.store.dead_letters.list(queue, where=where, limit=1))
    if not matches:
        hint = "it was redriven or discarded, or never was"
        raise Problem(404, "gone", f"{queue} has no dead letter of version {text:.40}", hint=hint)
    single, redaction = matches[0], view.redaction
    known = await releases_since(view, single.died_at)
    return view.page(
        "dead_letters/dead_letter.html",
        f"Dead letter {single.key}",
        topics=("dead",),
        queue=queue,
        letter=single,
        releases=releases_at(known, single.consumer, single.died_at),
        error=redaction.text(single.error or ""),
        payload=redaction.payload(single.payload, single.content_type),
        headers=redaction.value(dict(single.headers or {})),
        where=query_of(where),
        commands=dead_choice.listed(view, queue, where),
        redrive_commands=dead_choice.redriven(view, queue, where, rate=None, canary=0),
    )


@screen.page("/queues/{queue}/dead/discard", Action.ADMIN)
async def discard_form(view: View) -> Page:
    queue, where = view.path["queue"], choice(view)
    matching = await view.run(view.app.store.dead_letters.count(queue, where=where, limit=COUNTED_TO))
    rows, _ = await _letters(view, queue, where, None, 5, SAMPLE_BYTES)
    return view.page(
        "dead_letters/discard.html",
        f"Discard dead letters of {queue}",
        queue=queue,
        where=query_of(where),
        words=words(where),
        matching=matching,
        listing=_letter_listing(view, rows, None),
        commands=dead_choice.discarded(view, queue, where),
    )


@screen.form("/queues/{queue}/dead/discard", Action.ADMIN, "discard dead letters")
async def discard(view: View) -> Response:
    queue, where = view.path["queue"], choice(view, view.form)
    if view.form.get("confirm") != queue:
        raise Problem(422, "not_confirmed", "nothing was discarded: the name of the queue was not typed")
    count = await view.run(view.app.store.dead_letters.discard(queue, where=where))
    noun = "dead letter was" if count == 1 else "dead letters were"
    return view.done(f"{count:,} {noun} discarded", path("queues", queue, "dead"))
