"""Archive explorer: what is in the lakes, and SQL on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any, NamedTuple

from starlette.responses import Response

from tarry.core.analytics.manifest import ArchivedFile
from tarry.core.errors import InvalidInput, InvalidState
from tarry.edges.dashboard import commands, lake_sql
from tarry.edges.dashboard.commands import Commands
from tarry.edges.dashboard.listing import Column, Listing
from tarry.edges.dashboard.narrower import MOST_QUEUES, Narrower
from tarry.edges.dashboard.screen import Page, Screen, View
from tarry.edges.http.problems import Problem

screen = Screen("archive", "Archive", "/archive", shortcut="r", icon="archive")
MOST_FILES = 2_000
MOST_DOWNLOADED = 1_000_000
"""Rows of a Parquet file."""
DAYS = 7
_EXAMPLES = (
    ("Events by kind", "select kind, count(*) as events from events group by kind order by events desc"),
    (
        "Errors",
        "select error, count(*) as events, max(at) as last from events where error is not null "
        "group by error order by events desc",
    ),
    (
        "Slowest messages",
        "select queue, key, max(at) - min(at) as lasted from events where key is not null "
        "group by queue, key order by lasted desc limit 20",
    ),
    (
        "Busiest minutes",
        "select date_trunc('minute', at) as minute, count(*) as events from events "
        "group by minute order by events desc limit 20",
    ),
)


class Part(NamedTuple):
    """The files of a queue on one day."""

    lake: str
    day: date
    queue: str
    files: int
    rows: int
    bytes: int
    checksum: str
    """The sum of those of its events, whatever files they are in."""
    kept_until: date | None
    """None: the queue was deleted."""


class Chosen(NamedTuple):
    """Days and queue that the query of a page names."""

    since: date
    until: date | None
    queue: str | None

    @classmethod
    def of(cls, view: View) -> Chosen:
        since = _day(view.query.get("since"), "since") or view.now.date() - timedelta(days=DAYS - 1)
        return cls(since, _day(view.query.get("until"), "until"), view.query.get("queue", "").strip() or None)

    async def files(self, view: View) -> list[ArchivedFile]:
        role = view.app.store.analytics
        return await view.run(role.lake_files(since=self.since, until=self.until, queue=self.queue, limit=MOST_FILES))


@screen.page("/archive/result", all_queues=True)
async def download(view: View) -> Response:
    """The result of a query as a Parquet file."""
    if not lake_sql.is_installed():
        raise InvalidState("SQL needs DuckDB, which is not installed", hint=lake_sql.INSTALL)
    if view.redaction.patterns:
        hint = "download it as CSV, in which rules are applied"
        raise Problem(
            409, "invalid_state", "rules hide parts of texts here, and a Parquet file would have them", hint=hint
        )
    readable = lake_sql.local(await Chosen.of(view).files(view))
    view.allow(lake_sql.QUERY_FOR_S)
    async with view.dashboard.lake_turns:
        content = await asyncio.to_thread(lake_sql.parquet, readable, view.query.get("sql", ""), MOST_DOWNLOADED)
    headers = {"content-disposition": 'attachment; filename="events.parquet"'}
    return Response(content, headers=headers, media_type="application/vnd.apache.parquet")


@screen.page("/archive", all_queues=True)
async def archive(view: View) -> Page:
    statement = view.query.get("sql", "").strip()
    since, until, queue = chosen = Chosen.of(view)
    files = await chosen.files(view)
    readable = lake_sql.local(files)
    result, refusal = None, None
    if statement and lake_sql.is_installed() and (readable or view.format != "html"):
        view.allow(lake_sql.QUERY_FOR_S)
        try:
            async with view.dashboard.lake_turns:
                result = await asyncio.to_thread(lake_sql.query, readable, statement, view.limit)
        except InvalidInput as error:
            if view.format != "html":
                raise
            refusal = error
    kept = {info.name: info.settings.retention_for for info in await view.app.queues.list()}
    parts = _parts(files, kept)
    listing = _table(view, result) if result is not None else _partitions(parts[: view.limit])
    return view.page(
        "analytics/archive.html",
        "Archive",
        listing=listing,
        result=result,
        refusal=refusal,
        narrower=_narrower(view, chosen, readable) if isinstance(refusal, lake_sql.TooMuch) else [],
        statement=statement or _EXAMPLES[0][1],
        is_installed=lake_sql.is_installed(),
        install=Commands(cli=lake_sql.INSTALL),
        first=Commands(cli=commands.cli("pipeline", "archive")),
        files=files,
        run=next(iter(await view.run(view.app.store.analytics.last_runs(["archive"]))), None),
        readable=readable,
        parts=_partitions(parts[: view.limit]),
        hidden=max(0, len(parts) - view.limit),
        capped=len(files) == MOST_FILES,
        total_bytes=sum(each.file.bytes for each in readable),
        total_rows=sum(each.file.rows for each in readable),
        since=since,
        until=until,
        queue=queue or "",
        limits=lake_sql,
        examples=_EXAMPLES,
        restore=_restore(queue or next((each.file.queue for each in files), "orders"), since, until or view.now.date()),
        commands=Commands(
            curl=commands.curl(
                view.absolute(view.url("/archive.csv")),
                query={"sql": statement or _EXAMPLES[0][1]},
            ),
            cli=commands.cli("pipeline", "status"),
            python=program(readable[0].lake) if readable else None,
        ),
    )


def _narrower(view: View, chosen: Chosen, files: Sequence[ArchivedFile]) -> list[Narrower]:
    """The query on one day, or on one queue, of the files that it was to read."""
    days = sorted({each.file.day for each in files}, reverse=True)
    queues = sorted({each.file.queue for each in files})
    links = [Narrower(f"{day} alone", view.here(since=day, until=day)) for day in days[:1] if len(days) > 1]
    if chosen.queue is None and len(queues) > 1:
        links += [Narrower(f"queue {name} alone", view.here(queue=name)) for name in queues[:MOST_QUEUES]]
    return links


def program(lake: str) -> str:
    """Python that reads the archive by its log: directories may also contain files of runs that were killed or replaced."""
    return "\n".join(
        (
            "import duckdb",
            "from deltalake import DeltaTable",
            "",
            f"events = DeltaTable({f'{lake}/events'!r}).to_pyarrow_dataset()",
            'print(duckdb.sql("select * from events limit 10"))',
        )
    )


def _restore(queue: str, since: date, until: date) -> Commands:
    """How archived messages are offered again: Spark does it, as it may be millions."""
    chosen = (
        "--outcome",
        "offered",
        "--since",
        f"{since}T00:00:00Z",
        "--until",
        f"{until + timedelta(days=1)}T00:00:00Z",
    )
    return Commands(cli=commands.cli("pipeline", "replay", queue, *chosen, "--dry-run"))


def _day(text: str | None, name: str) -> date | None:
    if not text:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise InvalidInput(f"{name} must be a day like 2030-01-31, not {text!r:.40}") from None


def _parts(files: Sequence[ArchivedFile], kept: Mapping[str, timedelta]) -> list[Part]:
    parts: dict[tuple[date, str, str], list[ArchivedFile]] = {}
    for each in files:
        parts.setdefault((each.file.day, each.file.queue, each.lake), []).append(each)
    return [
        Part(
            lake=lake,
            day=day,
            queue=queue,
            files=len(group),
            rows=sum(each.file.rows for each in group),
            bytes=sum(each.file.bytes for each in group),
            checksum=f"{sum(each.file.checksum for each in group) % 2**64:016x}",
            kept_until=day + kept[queue] if queue in kept else None,
        )
        for (day, queue, lake), group in sorted(parts.items(), key=lambda item: (-item[0][0].toordinal(), item[0][1:]))
    ]


def _partitions(parts: Sequence[Part]) -> Listing:
    columns = (
        Column("day", "Day (UTC)", value=lambda row: row.day.isoformat()),
        Column("queue", "Queue"),
        Column("files", "Files", "number"),
        Column("rows", "Events", "number"),
        Column("bytes", "Size", "bytes"),
        Column("kept_until", "Kept until", value=lambda row: row.kept_until and str(row.kept_until), hide_small=True),
        Column("checksum", "Checksum", "code", hide_small=True),
        Column("lake", "Lake", "code", hide_small=True),
    )
    return Listing(columns=columns, rows=parts, name="partitions")


def _table(view: View, result: lake_sql.QueryResult) -> Listing:
    hide = view.redaction.text
    columns: list[Column] = []
    for at, name in enumerate(result.columns):
        first = next((row[at] for row in result.rows if row[at] is not None), None)
        kind: Any = "number" if isinstance(first, (int, float)) and not isinstance(first, bool) else "text"
        columns.append(Column(name, name, kind, value=_cell(at, hide)))
    return Listing(columns=columns, rows=result.rows, name="events")


def _cell(at: int, hide: Callable[[str], str]) -> Callable[[tuple[Any, ...]], Any]:
    def value(row: tuple[Any, ...]) -> Any:
        cell = row[at]
        if isinstance(cell, datetime):
            return cell.isoformat(sep=" ", timespec="milliseconds")
        return hide(cell) if isinstance(cell, str) else cell

    return value
