"""Time travel: a queue as it was at an instant, from the journal, and from the archive where the journal ends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from tarry.core.analytics.port import AnalyticsQuery
from tarry.core.dead_letters.fingerprints import headline
from tarry.core.durations import INSTANTS, moment
from tarry.core.errors import InvalidInput
from tarry.core.journal.events import Event, JournalLevel
from tarry.core.journal.past import PastMessage, past_messages
from tarry.core.messages.states import LIVE, State
from tarry.core.rollups.model import WIDTHS, QueueSlice, RollupWindow
from tarry.core.search.query import Period, Search
from tarry.edges.dashboard import commands, lake_sql
from tarry.edges.dashboard.commands import Commands, message_path
from tarry.edges.dashboard.listing import Column, Listing, whole
from tarry.edges.dashboard.ranges import floor
from tarry.edges.dashboard.screen import Page, View
from tarry.edges.dashboard.screens.queues import screen
from tarry.edges.formats import instant as instant_text

EVENTS = 500
"""Events before the instant that are read, and as many after it."""
LIVE_ROWS = 500
FILES = 200
"""Files of the archive that are read."""
_SECOND, _MINUTE = timedelta(seconds=1), timedelta(minutes=1)
_STEPS = (("-1 h", -3600), ("-10 min", -600), ("-1 min", -60), ("+1 min", 60), ("+10 min", 600), ("+1 h", 3600))


@screen.page("/queues/{queue}/at")
async def at_instant(view: View) -> Page:
    queue, store = view.path["queue"], view.app.store
    info = await view.app.queues.get(queue)
    at = _instant(view)
    slices = await _slices(view, queue, at)
    journal_since = await view.run(store.search.journal_since())
    before = await _before(view, queue, at, journal_since)
    if journal_since is None or at >= journal_since:
        later, next_ones = await _after(view, queue, at, slices.rows, before.shortly_after)
    else:
        later, next_ones = await _after_in_archive(view, queue, at, journal_since)
    live = await view.run(store.search.messages(Search(created=Period(None, at)), [queue], limit=LIVE_ROWS))
    messages = past_messages(at, before.rows, later or [], live.messages)
    offset = whole(view.query.get("after", ""), 6) or 0
    page = messages[offset : offset + view.limit]
    redaction = view.redaction
    return view.page(
        "messages/past.html",
        f"{queue} at {at:%Y-%m-%d %H:%M:%S} UTC",
        queue=queue,
        at=at,
        info=info,
        is_off=info.settings.journal is JournalLevel.OFF,
        listing=Listing(
            columns=(
                Column("key", "Key", "code", href=lambda row: message_path(queue, row.key)),
                Column("state", "State then", "state", value=lambda row: row.state.value),
                Column("due_at", "Due", "time"),
                Column("attempt", "Attempts", "number"),
                Column("priority", "Priority", "number", hide_small=True),
                Column("consumer", "Consumer", hide_small=True),
                Column("source", "Known from", value=lambda row: row.source.value, hide_small=True),
                Column(
                    "error",
                    "Error",
                    value=lambda row: row.error and headline(redaction.text(row.error)),
                    hide_small=True,
                ),
            ),
            rows=page,
            next=str(offset + len(page)) if offset + len(page) < len(messages) else None,
            name="messages",
        ),
        counts=_counts(messages),
        exact=await _exact(view, queue, slices),
        before=before.rows[:12],
        after=next_ones[:12],
        oldest=before.rows[-1].at if before.is_cut and before.rows else None,
        archive=before.archive,
        later_is_cut=later is None,
        live_is_cut=live.matching.capped or live.matching.n > len(live.messages),
        journal_since=journal_since,
        events=EVENTS,
        steps=[
            (name, instant_text(min(at + timedelta(seconds=seconds), view.now)))
            for name, seconds in _STEPS
            if seconds < 0 or at < view.now - timedelta(seconds=1)
        ],
        commands=Commands(curl=commands.curl(view.absolute(view.here(after=None).replace("/at?", "/at.json?")))),
    )


class Archived(NamedTuple):
    """What the archive has of a time."""

    rows: Sequence[Event] = ()
    is_cut: bool = False
    files: int = 0
    refusal: str | None = None
    """Why it was not read."""


class Before(NamedTuple):
    """The events before an instant, the newest first."""

    rows: Sequence[Event]
    is_cut: bool
    archive: Archived | None
    """None: the journal has enough of them."""
    shortly_after: Sequence[Event] = ()
    """Those of the second after the instant, the oldest first: what is read of it costs next to nothing."""


async def _before(view: View, queue: str, at: datetime, journal_since: datetime | None) -> Before:
    rows, after, events = list[Event](), list[Event](), view.app.store.analytics.events
    if journal_since is None or at >= journal_since:
        page = await view.run(events(AnalyticsQuery(queue=queue, until=min(at + _SECOND, view.now), limit=EVENTS)))
        after = [event for event in reversed(page.rows) if event.at >= at]
        if len(after) == EVENTS:  # a busy second
            page, after = await view.run(events(AnalyticsQuery(queue=queue, until=at, limit=EVENTS))), []
        rows = [event for event in page.rows if event.at < at]
        if page.next is not None or journal_since is None:
            return Before(rows, page.next is not None, None, after)
        at = journal_since
    archive = await archived(view, queue, None, at, EVENTS - len(rows))
    return Before([*rows, *archive.rows], archive.is_cut or archive.refusal is not None, archive, after)


async def _after_in_archive(
    view: View, queue: str, at: datetime, journal_since: datetime
) -> tuple[list[Event] | None, Sequence[Event]]:
    """As `_after`, of an instant that only the archive has."""
    archive = await archived(view, queue, at, journal_since, EVENTS)
    if archive.is_cut or not archive.files:
        return None, archive.rows
    query = AnalyticsQuery(queue=queue, since=journal_since, until=view.now, limit=EVENTS)
    rest = await view.run(view.app.store.analytics.events(query))
    return None if rest.next is not None else [*archive.rows, *rest.rows[::-1]], archive.rows


async def archived(
    view: View, queue: str, since: datetime | None, until: datetime, limit: int, *, key: str | None = None
) -> Archived:
    """Without `since`: the newest ones. With `key`: those of this message."""
    first = None if since is None else since.date()
    files = await view.run(
        view.app.store.analytics.lake_files(since=first, until=until.date(), queue=queue, limit=FILES)
    )
    readable = lake_sql.local(files)
    if not files:
        return Archived()
    if not readable:
        return Archived(refusal=f"its files are in {files[0].lake}, which this process cannot read")
    if not lake_sql.is_installed():
        return Archived(refusal=f"it is read with DuckDB, which is not installed here: {lake_sql.INSTALL}")
    view.allow(lake_sql.QUERY_FOR_S)
    try:
        async with view.dashboard.lake_turns:
            rows, is_cut = await asyncio.to_thread(
                lake_sql.events, readable, since, until, is_newest_first=since is None, limit=limit, key=key
            )
    except InvalidInput as error:
        return Archived(refusal=str(error))
    return Archived(rows, is_cut or len(files) == FILES, len(readable))


async def _after(
    view: View, queue: str, at: datetime, slices: Sequence[QueueSlice], shortly_after: Sequence[Event]
) -> tuple[list[Event] | None, Sequence[Event]]:
    """All events since the instant, or None where the slices show that they are too many to be read; and the first ones."""
    analytics = view.app.store.analytics
    if sum(_events_in(row) for row in slices if row.start_at > at) <= EVENTS:
        query = AnalyticsQuery(queue=queue, since=at, until=view.now, limit=EVENTS)
        after = await view.run(analytics.events(query))
        if after.next is None:
            rows = list(after.rows[::-1])
            return rows, rows
    if shortly_after:
        return None, shortly_after
    query = AnalyticsQuery(queue=queue, since=at, until=at + _MINUTE, limit=EVENTS)
    return None, (await view.run(analytics.events(query))).rows[::-1]


def _events_in(row: QueueSlice) -> int:
    """At least as many: some kinds are not counted."""
    return row.offered + row.leased + row.acked + row.nacked + row.expired


def _instant(view: View) -> datetime:
    text = view.query.get("instant", "").strip()
    if not text:
        return view.now - timedelta(hours=1)
    if text.startswith("-"):
        at = moment(f"+{text[1:]}", "instant")
        return view.now - at if isinstance(at, timedelta) else at
    at = moment(
        text if text.startswith("+") or text[10:11] not in ("T", " ") or _has_zone(text) else f"{text}Z", "instant"
    )
    if isinstance(at, timedelta) or at > view.now:
        raise InvalidInput("instant: lies in the future", hint="the calendar shows what is planned")
    if at < datetime(2000, 1, 1, tzinfo=UTC):
        raise InvalidInput(f"instant: {text!r:.40} is too long ago", hint=INSTANTS)
    return at


def _has_zone(text: str) -> bool:
    return text[-1:] in ("Z", "z") or "+" in text[11:] or "-" in text[11:]


def _counts(messages: list[PastMessage]) -> dict[str, int]:
    return {state.value: sum(row.state is state for row in messages) for state in (*LIVE, State.DEAD)}


class _Slices(NamedTuple):
    """What happened since the beginning of the slice in which the instant lies."""

    since: datetime | None
    """None: no slices are kept for so long."""
    rows: Sequence[QueueSlice]


async def _slices(view: View, queue: str, at: datetime) -> _Slices:
    await view.dashboard.roll_ups.fresh()
    width = next((width for width, kept in WIDTHS.items() if at > view.now - kept + width), None)
    if width is None:
        return _Slices(None, ())
    since = floor(at, width)
    window = RollupWindow(width, since, view.now + width, queue)
    return _Slices(since, await view.run(view.app.store.rollups.slices(window)))


async def _exact(view: View, queue: str, slices: _Slices) -> dict[str, object] | None:
    """The numbers of live and dead messages, from the totals of now and what changed since; exact at the start of a slice."""
    standing = next(iter(await view.run(view.app.store.rollups.standings(queue=queue, limit=1))), None)
    if slices.since is None or standing is None or standing.live_total is None or standing.dead_total is None:
        return None
    return {
        "at": slices.since,
        "live": max(0, standing.live_total - sum(row.live_delta for row in slices.rows)),
        "dead": max(0, standing.dead_total - sum(row.dead_delta for row in slices.rows)),
    }
