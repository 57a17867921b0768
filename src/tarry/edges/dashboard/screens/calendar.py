"""The calendar: everything that is planned, and what was delivered before."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from itertools import islice
from typing import Any, NamedTuple

from tarry.core.cron.model import DueCount, ScheduleState
from tarry.core.cron.planner import load_ahead
from tarry.core.cron.timezones import zone_of
from tarry.core.errors import InvalidInput
from tarry.core.messages.model import Filter, MessagePosition
from tarry.core.rollups.model import QueueSlice, RollupWindow, due_share
from tarry.edges.dashboard import charts, commands
from tarry.edges.dashboard.commands import Commands, message_path
from tarry.edges.dashboard.listing import Column, Listing
from tarry.edges.dashboard.narrower import Narrower, filtered_by_queue
from tarry.edges.dashboard.ranges import floor
from tarry.edges.dashboard.screen import Page, Screen, View
from tarry.edges.dashboard.screens.schedule_editor import BROWSER_ZONE
from tarry.edges.dashboard.screens.schedules import local, page_path

screen = Screen("calendar", "Calendar", "/calendar", shortcut="c", icon="calendar")
_MINUTE, _HOUR, _DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
_CAPACITY_FOR, _CAPACITY_WIDTH = timedelta(days=1), timedelta(minutes=10)
_CAPACITY_S = 60.0
"""How long the capacity of queues is remembered."""
_TICKS_S = 10.0
"""How long the ticks of unchanged schedules are remembered."""
_COMPUTED_S = 1.0
"""How long ticks are computed for one page; schedules beyond are left out, and the page shows how many."""
_LISTED = 50
_LISTED_QUEUES = 10
_MARKS = 50
"""Schedules of the view with one row for each."""


class CalendarSpan(NamedTuple):
    """A view of the calendar: cells of `every`, in rows of a day or an hour."""

    name: str
    every: timedelta
    columns: int
    past_rows: int
    rows: int
    title: str

    @property
    def row(self) -> timedelta:
        return self.every * self.columns


SPANS = {
    span.name: span
    for span in (
        CalendarSpan("24h", _MINUTE, 60, 2, 24, "24 hours"),
        CalendarSpan("7d", _HOUR, 24, 3, 7, "7 days"),
        CalendarSpan("30d", _HOUR, 24, 7, 30, "30 days"),
    )
}


@dataclass(slots=True)
class CalendarCell:
    """What is planned or was delivered in one slice of time."""

    start_at: datetime
    delayed: int = 0
    retries: int = 0
    ticks: int = 0
    delivered: int = 0
    failed: int = 0
    late: list[str] = field(default_factory=list[str])
    """Queues for which more is planned by then than they acked lately at their best."""

    @property
    def planned(self) -> int:
        return self.delayed + self.retries + self.ticks


class Grid(NamedTuple):
    cells: dict[datetime, CalendarCell]
    counted: int | None
    """Messages of each queue that are counted, if some queue has more."""
    schedules: int
    left_out: int
    """Schedules whose ticks took too long to compute."""


def _narrower(view: View) -> list[Narrower]:
    chosen = SPANS.get(view.query.get("span", "7d"))
    length = None if chosen is None else _length(chosen)
    shorter = [name for name, span in SPANS.items() if length is not None and _length(span) < length]
    spans = [Narrower(f"the next {name}", view.here(span=name, at=None, after=None)) for name in reversed(shorter)]
    return [*spans, *filtered_by_queue(view)]


def _length(span: CalendarSpan) -> timedelta:
    return span.rows * span.row


@screen.page("/calendar", narrower=_narrower)
async def calendar(view: View) -> Page:
    span = SPANS.get(view.query.get("span", "7d"))
    if span is None:
        raise InvalidInput(f"span must be one of {', '.join(SPANS)}")
    zone, queue = _zone(view), view.query.get("queue") or None
    first, since, until = _bounds(view.now, span, zone)
    common: dict[str, Any] = {
        "span": span,
        "spans": SPANS,
        "zone_name": zone,
        "queue": queue,
        "by": "schedule" if view.query.get("by") == "schedule" else "time",
        "failed": view.query.get("failed") == "1",
        "page_path": page_path,
        "local": local,
        "commands": Commands(
            curl=commands.curl(view.api("schedules")),
            cli=commands.cli(
                "calendar", "--next", span.name, "--zone", zone, *(() if queue is None else ("--queue", queue))
            ),
            python=commands.python(
                "for state in app.schedules.list():", "    print(state.name, app.schedules.preview(state.name, 20))"
            ),
        ),
    }
    if view.query.get("at"):
        start = _instant(view.query["at"])
        return await _cell_page(view, span, start, await _schedules(view, queue), common)
    if common["by"] == "schedule":
        return await _marks_page(view, span, await _schedules(view, queue), until, common)
    grid = await _grid(view, span, first, since, until, queue)
    cells = [cell for _, cell in sorted(grid.cells.items())]
    columns = (
        Column("start_at", "From", "time"),
        *(Column(name, name.title(), "number") for name in ("delayed", "retries", "ticks", "delivered", "failed")),
        Column("late", "Likely late"),
    )
    planned = [cell for cell in cells if cell.planned]
    busiest = sorted(planned, key=lambda cell: -cell.planned)[:10]
    return view.page(
        "cron/calendar.html",
        "Calendar",
        topics=("schedules", "clock"),
        listing=Listing(columns=columns, rows=cells, name="cells"),
        grid=grid,
        drawing=_drawing(grid.cells.values(), span, first, view.now, zone, failed=common["failed"]),
        busiest=busiest,
        late=[cell for cell in planned if cell.late],
        totals={
            name: sum(getattr(cell, name) for cell in cells)
            for name in ("delayed", "retries", "ticks", "delivered", "failed")
        },
        **common,
    )


async def _schedules(view: View, queue: str | None) -> list[ScheduleState]:
    states = await view.app.schedules.list()
    return [state for state in states if view.sees(state.spec.queue) and queue in (None, state.spec.queue)]


def _zone(view: View) -> str:
    """Of the query; else the browser's, if the visitor chose local times."""
    if given := view.query.get("zone"):
        return zone_of(given).key
    if view.request.cookies.get("tarry_zone") == "browser":
        try:
            return zone_of(view.request.cookies.get(BROWSER_ZONE, "UTC")).key
        except InvalidInput:
            pass
    return "UTC"


def _instant(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None or not 1970 < at.year < 9000:
        raise InvalidInput(f"at is not a time of the calendar: {text!r:.60}")
    return at


def _bounds(now: datetime, span: CalendarSpan, zone: str) -> tuple[datetime, datetime, datetime]:
    """The beginning of the first row, of the current cell, and the end."""
    wall = now.astimezone(zone_of(zone))
    begin = wall.replace(hour=wall.hour if span.every == _MINUTE else 0, minute=0, second=0, microsecond=0)
    today = begin.astimezone(now.tzinfo)
    cell = wall.replace(minute=0 if span.every == _HOUR else wall.minute, second=0, microsecond=0)
    return today - span.past_rows * span.row, cell.astimezone(now.tzinfo), today + span.rows * span.row


async def _grid(
    view: View,
    span: CalendarSpan,
    first: datetime,
    since: datetime,
    until: datetime,
    queue: str | None,
) -> Grid:
    store, every, remembered = view.app.store, span.every, view.dashboard.remembered

    def shows(name: str) -> bool:
        return view.sees(name) and queue in (None, name)

    await view.dashboard.roll_ups.fresh()
    names = [name for name in await view.queues() if queue in (None, name)]
    past = await view.run(store.rollups.slices(RollupWindow(every, first, view.now), sum_of=names))
    due = [
        row for row in await view.run(store.rollups.due_ahead(since, until, every, queue=queue)) if view.sees(row.queue)
    ]
    best = await remembered.get("capacity", _CAPACITY_S, lambda: _capacity(view))
    states = await view.app.schedules.list()
    known = tuple((state.name, state.installed_at, state.generation, state.paused) for state in states)
    ahead = await remembered.get(
        ("ticks", since, until, known), _TICKS_S, lambda: ticks_ahead(view, states, since, until, every)
    )
    cells: dict[datetime, CalendarCell] = {}
    by_queue: defaultdict[str, Counter[datetime]] = defaultdict(Counter)

    def cell_at(at: datetime) -> CalendarCell:
        start = since + (at - since) // every * every
        return cells.get(start) or cells.setdefault(start, CalendarCell(start))

    for row in past:
        cell = cell_at(row.start_at)
        cell.delivered += row.leased
        cell.failed += row.nacked + row.expired
    for row in due:
        cell = cell_at(row.start_at)
        cell.delayed += row.messages - row.retries
        cell.retries += row.retries
        by_queue[row.queue][cell.start_at] += row.messages
    for (name, at), count in ahead.ticks.items():
        if shows(name):
            cell = cell_at(at)
            cell.ticks += count
            by_queue[name][cell.start_at] += count
    for name, starts in late_slices(by_queue, best, every).items():
        for start in starts:
            cells[start].late.append(name)
    most = Counter[str]()
    for row in due:
        most[row.queue] += row.messages
    counted = due_share(len(names))
    schedules, left_out = (
        sum(count for name, count in counts.items() if shows(name)) for counts in (ahead.schedules, ahead.left_out)
    )
    return Grid(cells, counted if any(n >= counted for n in most.values()) else None, schedules, left_out)


class TicksAhead(NamedTuple):
    """The ticks of all schedules by queue and slice; and by queue how many schedules there are, and were left out."""

    ticks: Counter[tuple[str, datetime]]
    schedules: Counter[str]
    left_out: Counter[str]


async def ticks_ahead(
    view: View, states: Sequence[ScheduleState], since: datetime, until: datetime, every: timedelta
) -> TicksAhead:
    """The ticks of as many schedules as time permits."""

    def computed() -> TicksAhead:
        ahead, started = (
            TicksAhead(Counter(), Counter(state.spec.queue for state in states), Counter()),
            time.monotonic(),
        )
        for state in states:
            if time.monotonic() > started + _COMPUTED_S:
                ahead.left_out[state.spec.queue] += 1
                continue
            for name, start, count in load_ahead([state], view.now, until, every, since):
                ahead.ticks[name, start] += count
        return ahead

    return await view.app.schedules.offload.run(computed)


async def _capacity(view: View) -> dict[str, int]:
    """The most messages that a queue acked in ten minutes of the last day."""
    window = RollupWindow(_CAPACITY_WIDTH, view.now - _CAPACITY_FOR, view.now)
    best: dict[str, int] = {}
    for row in await view.run(view.app.store.rollups.slices(window)):
        best[row.queue] = max(best.get(row.queue, 0), row.acked)
    return best


def late_slices(
    planned: dict[str, Counter[datetime]], best: Mapping[str, int], every: timedelta
) -> dict[str, list[datetime]]:
    """Slices at whose end a queue has work left, if it works as fast as in its best ten minutes of the last day. Queues that
    acked nothing lately cannot be judged."""
    late: dict[str, list[datetime]] = {}
    for queue, counts in planned.items():
        capacity = best.get(queue, 0) * (every / _CAPACITY_WIDTH)
        if capacity <= 0:
            continue
        left, before = 0.0, None
        for start in sorted(counts):
            gap = 0 if before is None else (start - before) / every - 1
            left = max(0.0, max(0.0, left - gap * capacity) + counts[start] - capacity)
            before = start
            if left > 0:
                late.setdefault(queue, []).append(start)
    return late


class CalendarDrawing(NamedTuple):
    """The cells by shade: their position and title."""

    planned: dict[int, list[tuple[int, int, str]]]
    past: dict[int, list[tuple[int, int, str]]]
    late: list[tuple[int, int, int]]
    """Runs of cells in a row: column, row and how many."""
    failed: list[tuple[int, int]]
    rows: list[str]
    today: int
    column: int
    """Of the present time."""
    labels: list[tuple[int, str]]
    start_s: int
    size: int


def _drawing(
    cells: Iterable[CalendarCell], span: CalendarSpan, first: datetime, now: datetime, zone: str, *, failed: bool
) -> CalendarDrawing:
    local_zone, by_hour = zone_of(zone), span.every == _HOUR
    begin = first.astimezone(local_zone)

    def position(at: datetime) -> tuple[int, int]:
        wall = at.astimezone(local_zone)
        if by_hour:
            return wall.hour, (wall.date() - begin.date()).days
        return wall.minute, (at - first) // _HOUR

    planned: defaultdict[tuple[int, int], int] = defaultdict(int)
    past: defaultdict[tuple[int, int], int] = defaultdict(int)
    titles: dict[tuple[int, int], str] = {}
    late: set[tuple[int, int]] = set()
    failures: set[tuple[int, int]] = set()
    for cell in cells:
        at = position(cell.start_at)
        if not (0 <= at[1] < span.past_rows + span.rows):
            continue
        planned[at] += cell.planned
        past[at] += cell.delivered
        late |= {at} if cell.late else set()
        failures |= {at} if failed and cell.failed else set()
        titles[at] = _title(cell, local_zone, planned[at], past[at])
    rows = range(span.past_rows + span.rows)
    days: list[date] = [begin.date() + row * _DAY for row in rows]
    return CalendarDrawing(
        planned=_by_shade({at: n for at, n in planned.items() if n}, titles),
        past=_by_shade({at: n for at, n in past.items() if n and not planned[at]}, titles),
        late=[
            (first_column, row, width)
            for row in rows
            for first_column, width in _runs(sorted(column for column, at in late if at == row))
        ],
        failed=sorted(failures),
        rows=[
            f"{days[row]:%a %d %b}" if by_hour else f"{(first + row * _HOUR).astimezone(local_zone):%a %H:00}"
            for row in rows
        ],
        today=position(now)[1],
        column=position(now)[0],
        labels=[
            (column, f"{column:02}" if by_hour else f":{column:02}")
            for column in range(0, span.columns, 3 if by_hour else 5)
        ],
        start_s=int(first.timestamp()),
        size=38 if by_hour else 16,
    )


def _title(cell: CalendarCell, zone: Any, planned: int, delivered: int) -> str:
    parts = [f"{planned:,} planned"] if planned else []
    parts += [f"{delivered:,} delivered"] if delivered else []
    parts += [f"{cell.failed:,} failed"] if cell.failed else []
    return f"{cell.start_at.astimezone(zone):%H:%M} {', '.join(parts)}"


def _by_shade(
    counts: dict[tuple[int, int], int], titles: dict[tuple[int, int], str]
) -> dict[int, list[tuple[int, int, str]]]:
    most, shades = max(counts.values(), default=0), defaultdict[int, list[tuple[int, int, str]]](list)
    for at in sorted(counts):
        shades[charts.shade(counts[at], most)].append((*at, titles[at]))
    return dict(sorted(shades.items()))


class Item(NamedTuple):
    """A line of a cell: a message, ticks of a schedule, or what happened to a queue."""

    at: datetime
    what: str
    name: str
    number: int
    queue: str
    href: str | None


async def _cell_page(
    view: View, span: CalendarSpan, start: datetime, states: Sequence[ScheduleState], common: dict[str, Any]
) -> Page:
    """What is in one cell."""
    store, end, queue = view.app.store, start + span.every, common["queue"]
    since, before = max(start, view.now), start - timedelta(microseconds=1)

    def ticks() -> list[Item]:
        items: list[Item] = []
        for state in states:
            after = max(before, state.cursor_at, view.now - timedelta(microseconds=1))
            coming = state.spec.timetable.between(after, end - timedelta(microseconds=1), 1_000)
            if coming and not state.paused:
                href = page_path(state.name)
                items.append(Item(coming[0], "ticks", state.name, len(coming), state.spec.queue, href))
        return items

    items = await view.app.schedules.offload.run(ticks) if end > view.now else []
    due: list[DueCount] = []
    if end > view.now:
        read = await view.run(store.rollups.due_ahead(start, end, span.every, queue=queue))
        due = sorted((row for row in read if view.sees(row.queue)), key=lambda row: (-row.messages, row.queue))
    for row in islice(due, _LISTED_QUEUES):
        filter = Filter(after=MessagePosition(before, 2**63 - 1), payloads=False)
        messages = await view.run(store.messages.list(row.queue, limit=_LISTED, filter=filter))
        items += [
            Item(
                message.due_at,
                "retry" if message.attempt else "message",
                view.redaction.text(message.key),
                1,
                row.queue,
                message_path(row.queue, message.key),
            )
            for message in messages
            if start <= message.due_at < end
        ]
    past: list[QueueSlice] = []
    if start <= view.now:
        await view.dashboard.roll_ups.fresh()
        width = span.every
        read_past = await view.run(store.rollups.slices(RollupWindow(width, floor(start, width), end, queue)))
        past = [row for row in read_past if view.sees(row.queue)]
    columns = (
        Column("at", "At", "time"),
        Column("what", "What"),
        Column("name", "Name", "code", href=lambda item: item.href),
        Column("number", "Number", "number", hide_small=True),
        Column("queue", "Queue", hide_small=True),
    )
    listed = sorted(items, key=lambda item: item.at)[: max(_LISTED * 2, view.limit)]
    return view.page(
        "cron/calendar_cell.html",
        "Calendar",
        topics=("schedules",),
        start=start,
        end=end,
        since=since,
        listing=Listing(columns=columns, rows=listed, name="planned"),
        due=due,
        planned=sum(row.messages for row in due) + sum(item.number for item in items if item.what == "ticks"),
        past=past,
        **common,
    )


class ScheduleMark(NamedTuple):
    """The ticks of one schedule along the span, as runs of neighbouring slots: position and width."""

    name: str
    sentence: str
    ticks: int
    runs: list[tuple[int, int]]


async def _marks_page(
    view: View, span: CalendarSpan, states: Sequence[ScheduleState], until: datetime, common: dict[str, Any]
) -> Page:
    """One row for each schedule."""
    from tarry.edges import schedule_words as words

    slot = {"24h": timedelta(minutes=10), "7d": _HOUR, "30d": timedelta(hours=6)}[span.name]
    since = floor(view.now, slot)
    end, after = since + SPANS[span.name].rows * span.row, view.query.get("after", "")
    matching = [state for state in states if state.name > after]
    shown = matching[:_MARKS]

    def marks() -> list[ScheduleMark]:
        made: list[ScheduleMark] = []
        started = time.monotonic()
        for state in shown:
            slots, count = list[int](), 0
            if not state.paused and time.monotonic() < started + _COMPUTED_S:
                width = _MINUTE if slot < _HOUR else _HOUR
                for start, ticks in state.spec.timetable.per_slice(view.now, end, width):
                    count += ticks
                    at = (start - since) // slot
                    if not slots or slots[-1] != at:
                        slots.append(at)
            made.append(ScheduleMark(state.name, words.sentence(state.spec.schedule), count, _runs(slots)))
        return made

    rows = await view.app.schedules.offload.run(marks)
    columns = (
        Column("name", "Schedule", href=lambda mark: page_path(mark.name)),
        Column("sentence", "Meaning"),
        Column("ticks", "Ticks", "number"),
    )
    slots = (end - since) // slot
    step = {"24h": 18, "7d": 24, "30d": 20}[span.name]
    zone = zone_of(common["zone_name"])
    return view.page(
        "cron/calendar_schedules.html",
        "Calendar",
        topics=("schedules", "clock"),
        listing=Listing(
            columns=columns, rows=rows, name="schedules", next=shown[-1].name if len(matching) > len(shown) else None
        ),
        states={state.name: state for state in shown},
        slots=slots,
        labels=[
            (at, f"{(since + at * slot).astimezone(zone):{'%H:%M' if span.name == '24h' else '%a %d'}}")
            for at in range(0, slots, step)
        ],
        **common,
    )


def _runs(slots: Sequence[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for slot in slots:
        if runs and runs[-1][0] + runs[-1][1] == slot:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((slot, 1))
    return runs
