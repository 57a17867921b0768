"""Consumers: which queues they work on, how fast and how well; and what each of them has leased."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from statistics import median
from typing import Any

from starlette.responses import Response

from tarry.core.analytics.port import AnalyticsPage, AnalyticsQuery
from tarry.core.dead_letters.fingerprints import fingerprint, pattern
from tarry.core.journal.events import Event, EventKind
from tarry.core.messages.edits import Edit
from tarry.core.messages.model import Counted, StoredMessage
from tarry.core.messages.outcomes import Edited
from tarry.core.messages.states import State
from tarry.core.rollups.model import CONSUMER_WIDTHS, WIDTHS, ConsumerSlice, RollupWindow
from tarry.core.search.hits import SearchPage
from tarry.core.search.query import Search
from tarry.core.security.api_keys import Action
from tarry.core.workers.model import REPORT_EVERY, RunningWorker
from tarry.edges.dashboard import commands
from tarry.edges.dashboard.commands import Commands, path
from tarry.edges.dashboard.listing import Column, Listing
from tarry.edges.dashboard.narrower import shorter_ranges
from tarry.edges.dashboard.ranges import RANGES, TimeRange, floor
from tarry.edges.dashboard.rendering import plural
from tarry.edges.dashboard.screen import Page, Screen, View
from tarry.edges.http.problems import Problem

screen = Screen("consumers", "Consumers", "/consumers", shortcut="w", icon="consumers")
LEASES = 1_000
_SHOWN = 200
ATTEMPTS = 1_000
"""Attempts whose times are read from the journal, of all consumers together."""
_ATTEMPTS_S = 5.0
"""How long they are remembered."""
STALE_FOR = timedelta(minutes=5)
_LONG = timedelta(hours=6)
_HOUR = timedelta(hours=1)
_HOURS = 48
_FEW_HOURS = 11
"""Before the last one, also of a consumer that is new."""
_HISTORY_QUEUES = 5
"""Of a consumer of more, the history has the first by name."""
_ENDED = (EventKind.ACKED, EventKind.NACKED)
_FAILED = (EventKind.NACKED, EventKind.EXPIRED, EventKind.BURIED)


@dataclass(slots=True)
class ConsumerRow:
    name: str
    queues: set[str] = field(default_factory=set[str])
    leased: int = 0
    acked: int = 0
    nacked: int = 0
    expired: int = 0
    work_s: float = 0.0
    last_at: datetime | None = None
    in_flight: int = 0
    per_s: float = 0.0
    p95_s: float | None = None
    is_stale: bool = False
    spark: Sequence[int] = ()
    workers: Sequence[RunningWorker] = ()
    """Those of this name that report: processes of `tarry worker`, and of `worker.run(app)`."""

    @property
    def host(self) -> str | None:
        """As its workers report, or of a name that the library gives: the host and the process."""
        host, _, process = self.name.rpartition(":")
        return self._joined("host") or (host if host and process.isdigit() else None)

    @property
    def version(self) -> str | None:
        return self._joined("version")

    @property
    def release(self) -> str | None:
        """Of the user's program."""
        return self._joined("release")

    def _joined(self, name: str) -> str | None:
        return ", ".join(sorted({value for worker in self.workers if (value := getattr(worker, name))})) or None

    @property
    def extensions(self) -> int | None:
        return sum(worker.extensions for worker in self.workers) if self.workers else None

    @property
    def skew(self) -> timedelta | None:
        return max((worker.skew for worker in self.workers), key=abs, default=None)

    @property
    def state(self) -> str:
        if any(worker.drain_at or worker.is_stopping for worker in self.workers):
            return "draining"
        return "stale" if self.is_stale else "active"

    @property
    def success(self) -> float | None:
        ended = self.acked + self.nacked + self.expired
        return self.acked / ended if ended else None

    @property
    def mean_s(self) -> float | None:
        ended = self.acked + self.nacked
        return self.work_s / ended if ended else None


COLUMNS = (
    Column("name", "Consumer", href=lambda row: path("consumers", row.name)),
    Column("queues", "Queues", value=lambda row: ", ".join(sorted(row.queues))),
    Column("state", "State"),
    Column("host", "Host"),
    Column("release", "Release"),
    Column("version", "Version"),
    Column("extensions", "Lease extensions", "number"),
    Column("skew", "Clock skew", "duration"),
    Column("in_flight", "In flight", "number"),
    Column("per_s", "Acked per second", "number", value=lambda row: round(row.per_s, 3)),
    Column("success", "Success", "number"),
    Column("mean_s", "Mean", "duration"),
    Column("p95_s", "p95", "duration"),
    Column("leased", "Leased", "number"),
    Column("acked", "Acked", "number"),
    Column("nacked", "Nacked", "number"),
    Column("expired", "Expired", "number"),
    Column("last_at", "Last seen", "time"),
)


@screen.page("/consumers", narrower=shorter_ranges)
async def consumers(view: View) -> Page:
    rows = await _rows(view, (await _leases(view)).messages)
    after = view.query.get("after", "")
    queue = view.query.get("queue", "").strip()
    rows = [row for row in rows if not queue or queue in row.queues]
    rest = [row for row in rows if row.name > after]
    page = rest[: view.limit]
    listing = Listing(
        columns=COLUMNS, rows=page, next=page[-1].name if len(rest) > len(page) else None, name="consumers"
    )
    return view.page(
        "consumers.html",
        "Consumers",
        topics=("consumers", "messages", "clock"),
        listing=listing,
        count=len(rows),
        queue=queue,
        active=sum(not row.is_stale for row in rows),
        attempts=ATTEMPTS,
        commands=Commands(curl=commands.curl(view.absolute(view.url("/consumers.json")))),
        first=Commands(
            cli=commands.cli("worker", "module:app"),
            python=commands.python(
                'for delivery in app.queue("orders").consume():',
                "    with delivery:",
                "        print(delivery.payload)",
            ),
        ),
    )


@screen.page("/consumers/{consumer:path}", narrower=shorter_ranges)
async def consumer(view: View) -> Page:
    name = view.path["consumer"]
    page = await _leases(view)
    rows = await _rows(view, page.messages)
    row = next((row for row in rows if row.name == name), None)
    leases = [message for message in page.messages if message.consumer == name]
    failed = await _failed(view, name, row)
    failures = [event for event in failed.rows if view.sees(event.queue) and not _is_repeated(event)]
    if row is None:
        if not leases and not failures:
            hint = "choose a longer time range; the names of consumers are those that workers give themselves"
            raise Problem(404, "not_found", f"no consumer {name!r:.100} was active in {view.range.words}", hint=hint)
        row = ConsumerRow(name, is_stale=True, in_flight=len(leases))
    redaction = view.redaction
    return view.page(
        "consumer.html",
        name,
        topics=("consumers", "messages", "clock"),
        row=row,
        listing=Listing(columns=COLUMNS, rows=[row], name="consumers"),
        leases=leases[:_SHOWN],
        leased=Counted(len(leases), page.matching.capped),
        groups=[
            {**group, "pattern": redaction.text(str(group["pattern"])), "error": redaction.text(str(group["error"]))}
            for group in _groups(failures, view.now)
        ],
        is_cut=failed.next is not None,
        peers=peers(row, rows),
        history=await _history(view, row),
        can_release=any(view.may("produce", message.queue) for message in leases),
        commands=Commands(curl=commands.curl(view.absolute(view.url("/consumers.json")))),
        can_drain=row.state == "active" and bool(row.workers) and _may_drain(view, row.workers),
        drain=Commands(
            curl=commands.form(view.form_url("drain-consumer"), {"consumer": name}),
            cli=commands.cli("consumer", "drain", name),
        ),
        release=Commands(curl=commands.form(view.form_url("release-leases"), {"consumer": name, "confirm": name})),
    )


@screen.form("/drain-consumer", Action.ADMIN, "drain a consumer")
async def drain(view: View) -> Response:
    """Its workers finish what they have, and end, within seconds of this."""
    name, store = view.form.get("consumer", ""), view.app.store
    named = [worker for worker in await view.run(store.workers.list()) if worker.consumer == name]
    if not named or not _may_drain(view, named):
        raise Problem(404, "not_found", f"no worker of yours is named {name!r:.100}", hint="see the list of consumers")
    drained = await view.run(store.workers.drain(name))
    every = f"{REPORT_EVERY.total_seconds():g} s"
    return view.done(
        f"{plural(drained, 'worker')} of {name} to drain with the next report: within {every}",
        path("consumers", name),
    )


def _may_drain(view: View, workers: Sequence[RunningWorker]) -> bool:
    return all(view.visitor.permits(Action.ADMIN, queue) for worker in workers for queue in worker.queues)


@screen.form("/release-leases", Action.PRODUCE, "release the leases of a consumer")
async def release(view: View) -> Response:
    """Of a consumer that is gone: its messages are due now, and their attempts do not count."""
    name = view.form.get("consumer", "")
    if not name or view.form.get("confirm") != name:
        raise Problem(409, "invalid_state", "the confirmation is not the name of the consumer; nothing was changed")
    store = view.app.store
    search = Search(state=State.LEASED, consumer=name)
    page = await view.run(store.search.messages(search, await view.queues(Action.PRODUCE), limit=LEASES))
    due_now = Edit(named=frozenset({"due_at"}), after=timedelta(0))
    released = 0
    for row in page.messages:
        outcome = await view.run(store.messages.edit(row.queue, row.key, due_now, version=row.version, force=True))
        released += outcome is Edited.UPDATED
    settled = len(page.messages) - released
    rest = f"; {settled:,} were settled meanwhile" if settled else ""
    more = "; it may have more: release again" if page.matching.n > len(page.messages) else ""
    return view.done(f"{plural(released, 'lease')} of {name} released{rest}{more}", "/consumers")


async def _failed(view: View, name: str, row: ConsumerRow | None) -> AnalyticsPage[Event]:
    """Its newest failures in the time range; the journal is read only if the rollups do not exclude that there are any."""
    store, range = view.app.store, view.range
    if row is not None and not row.nacked + row.expired:
        window = RollupWindow(range.width, range.since, range.until)
        if not any(row.buried for row in await view.run(store.rollups.slices(window, sum_of=sorted(row.queues)))):
            return AnalyticsPage(rows=[])
    query = AnalyticsQuery(limit=500, since=range.since, until=range.until if range.is_past else None)
    return await view.run(store.analytics.events(query, kinds=_FAILED, consumer=name))


async def _leases(view: View) -> SearchPage:
    """What consumers have leased, as far as a search goes: what is due first is leased first."""
    search = Search(state=State.LEASED)
    return await view.run(view.app.store.search.messages(search, await view.queues(), limit=LEASES))


def slice_width(chosen: TimeRange, now: datetime) -> timedelta:
    """The narrow slices for a short range, if they are kept for so long."""
    narrow, wide = CONSUMER_WIDTHS
    is_kept = chosen.since > now - WIDTHS[narrow] + narrow
    return narrow if is_kept and chosen.until - chosen.since <= _LONG else wide


async def _rows(view: View, leases: Sequence[StoredMessage[bytes]]) -> list[ConsumerRow]:
    """By name, from rollups, from what is leased now, and from the newest attempts in the journal."""
    store = view.app.store
    await view.dashboard.roll_ups.fresh()
    since, until = view.range.since, view.range.until
    width = slice_width(view.range, view.now)
    slices = [
        row
        for row in await view.run(store.rollups.consumers(RollupWindow(width, floor(since, width), until)))
        if view.sees(row.queue)
    ]
    query = AnalyticsQuery(limit=ATTEMPTS, since=since, until=until if view.range.is_past else None)

    async def attempts() -> AnalyticsPage[Event]:
        return await view.run(store.analytics.events(query, kinds=_ENDED))

    if view.range.name in RANGES:
        ended = await view.dashboard.remembered.get(("attempts", view.range.name), _ATTEMPTS_S, attempts)
    else:  # any number of visitors' own
        ended = await attempts()
    rows = _summed(slices, leases)
    for worker in await view.run(store.workers.list()):
        if any(view.sees(queue) for queue in worker.queues):
            row = rows.setdefault(worker.consumer, ConsumerRow(worker.consumer))
            row.queues |= {queue for queue in worker.queues if view.sees(queue)}
            row.workers = (*row.workers, worker)
            row.last_at = max(row.last_at or worker.seen_at, worker.seen_at)
    whole = until if view.range.is_past else floor(view.now, width)
    starts = [floor(since, width) + at * width for at in range(round((whole - floor(since, width)) / width))][-60:]
    acked: dict[str, Counter[datetime]] = defaultdict(Counter)
    for piece in slices:
        acked[piece.consumer][piece.start_at] += piece.acked
    took = _times(event for event in ended.rows if view.sees(event.queue))
    for row in rows.values():
        row.last_at = None if row.last_at is None else min(row.last_at, view.now)
        row.per_s = row.acked / (until - since).total_seconds()
        row.p95_s = _p95(took[row.name])
        is_quiet = row.last_at is None or row.last_at < view.now - STALE_FOR
        is_gone = bool(row.workers) and all(worker.is_late(view.now) for worker in row.workers)
        row.is_stale = not row.in_flight and (is_quiet or is_gone)
        row.spark = [acked[row.name][start] for start in starts]
    return sorted(rows.values(), key=lambda row: row.name)


def _summed(slices: Iterable[ConsumerSlice], leases: Iterable[StoredMessage[bytes]]) -> dict[str, ConsumerRow]:
    rows: dict[str, ConsumerRow] = {}
    for piece in slices:
        row = rows.setdefault(piece.consumer, ConsumerRow(piece.consumer))
        row.queues.add(piece.queue)
        row.leased += piece.leased
        row.acked += piece.acked
        row.nacked += piece.nacked
        row.expired += piece.expired
        row.work_s += piece.work_s
        row.last_at = max(row.last_at or piece.last_at, piece.last_at)
    for message in leases:
        if message.consumer is not None:
            row = rows.setdefault(message.consumer, ConsumerRow(message.consumer))
            row.queues.add(message.queue)
            row.in_flight += 1
    return rows


def _times(events: Iterable[Event]) -> dict[str, list[float]]:
    took: dict[str, list[float]] = defaultdict(list)
    for event in events:
        if event.consumer is not None and event.leased_at is not None:
            took[event.consumer].append((event.at - event.leased_at).total_seconds())
    return took


def _p95(took: list[float]) -> float | None:
    return sorted(took)[min(len(took) - 1, int(len(took) * 0.95))] if took else None


def _is_repeated(event: Event) -> bool:
    """The last attempt of a message is journaled as its failure, too."""
    return event.kind is EventKind.BURIED and (event.detail or {}).get("reason") == "exhausted"


def _groups(failures: Sequence[Event], now: datetime) -> list[dict[str, Any]]:
    groups: dict[str, list[Event]] = defaultdict(list)
    for event in failures:
        groups[fingerprint(event.kind.value, event.error)].append(event)
    return [
        {
            "pattern": pattern(events[0].error) or events[0].kind.value,
            "error": events[0].error or "",
            "count": len(events),
            "last_at": min(events[0].at, now),
            "queue": events[0].queue,
            "key": events[0].key,
            "kind": events[0].kind.value,
        }
        for events in sorted(groups.values(), key=len, reverse=True)
    ][:20]


async def _history(view: View, row: ConsumerRow) -> dict[str, Any] | None:
    """At most its last two days by hour, as the pipeline knows them. None: it has computed none."""
    since = floor(view.now, _HOUR) - (_HOURS - 1) * _HOUR
    known = sorted(row.queues & set(await view.queues()))
    pages = [
        await view.run(
            view.app.store.analytics.hours(
                AnalyticsQuery(queue=queue, since=since, limit=_HOURS + 1), consumer=row.name
            )
        )
        for queue in known[:_HISTORY_QUEUES]
    ]
    acked, failed, p95 = Counter[datetime](), Counter[datetime](), dict[datetime, float]()
    for hour in (hour for page in pages for hour in page.rows):
        acked[hour.hour] += hour.acked
        failed[hour.hour] += hour.failed + hour.expired
        if hour.processing is not None:
            p95[hour.hour] = max(p95.get(hour.hour, 0.0), hour.processing.p95)
    if not acked:
        return None
    first = max(since, min(*acked, floor(view.now, _HOUR) - _FEW_HOURS * _HOUR))
    starts = [first + at * _HOUR for at in range(int((view.now - first) / _HOUR) + 1)]
    return {
        "starts": starts,
        "acked": [acked[at] for at in starts],
        "failed": [failed[at] for at in starts],
        "p95": [p95.get(at) for at in starts],
        "run": pages[0].run,
        "queues": known[:_HISTORY_QUEUES] if len(known) > _HISTORY_QUEUES else None,
    }


def peers(row: ConsumerRow, rows: Sequence[ConsumerRow]) -> str | None:
    """How fast it is beside other consumers of its queues."""
    others = [other.mean_s for other in rows if other is not row and other.queues & row.queues and other.mean_s]
    if not others or not row.mean_s:
        return None
    ratio = row.mean_s / median(others)
    count = f"{len(others)} other consumer{'' if len(others) == 1 else 's'}"
    if 0.8 <= ratio <= 1.25:
        return f"about as fast as {count} of its queues"
    word, shown = ("slower", ratio) if ratio > 1 else ("faster", 1 / ratio)
    return f"{shown:.1f}× {word} than the median of {count} of its queues"
