"""Pipeline results as operations. The pipeline and the command line run them blocking, the broker awaiting."""

from binascii import Error as NotBase64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from operator import attrgetter
from typing import Annotated, Any, LiteralString, TypeVar

import msgspec
from msgspec import Meta

from tarry.core.analytics.anomalies import Anomaly, Band, Mute, Severity
from tarry.core.analytics.manifest import ArchivedDay, ArchivedFile, LakeFile, PastRun
from tarry.core.analytics.metrics import ConsumerHour, Forecast, MetricMinute
from tarry.core.analytics.port import AnalyticsPage, AnalyticsQuery
from tarry.core.errors import InvalidInput, UnknownQueue
from tarry.storage.postgres.statement import Op, Row, Statement, bind, each, first, made, value, value_or_none
from tarry.wire.ids import base64url, base64url_data

R = TypeVar("R")

MAX_ROWS = 100_000
"""The largest page."""
OF_THE_PORT = (
    *("minutes", "hours", "forecasts", "anomalies", "anomaly", "acknowledge", "mutes", "unmute"),
    *("bands", "runs", "last_runs", "lake_days", "lake_files"),
)
"""Operations that are methods of `core.analytics.port.AnalyticsRole`."""


class _Position(msgspec.Struct, array_like=True, frozen=True):
    """The sort columns of the last row of a page."""

    at: Annotated[datetime, Meta(tz=True)]
    id: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    text: Annotated[str, Meta(pattern=r"^[^\0]*$")] | None = None


def minutes(query: AnalyticsQuery) -> Op[AnalyticsPage[MetricMinute]]:
    return _page(query, "metrics", "analytics/metrics", made(MetricMinute), ("minute", "queue_id"))


def hours(query: AnalyticsQuery, *, consumer: str | None = None) -> Op[AnalyticsPage[ConsumerHour]]:
    order = ("hour", "queue_id", "consumer")
    return _page(query, "consumers", "analytics/consumers", made(ConsumerHour), order, {"consumer": consumer})


def forecasts(query: AnalyticsQuery) -> Op[AnalyticsPage[Forecast]]:
    rows = yield from rows_of(query.queue, "analytics/forecasts", made(Forecast), {})
    visible = [row for row in rows if query.sees(row.queue)]
    return AnalyticsPage(rows=visible, run=(yield from last_run("forecast").run()))


def anomalies(
    query: AnalyticsQuery,
    *,
    detector: str | None = None,
    severity: Severity | None = None,
    acknowledged: bool | None = None,
    id: int | None = None,
) -> Op[AnalyticsPage[Anomaly]]:
    params = {
        "detector": detector,
        "severity": None if severity is None else Severity(severity).value,
        "acknowledged": acknowledged,
        "id": id,
    }
    return _page(query, "anomalies", "analytics/anomalies/anomalies", made(Anomaly), ("window_to", "id"), params)


def anomaly(id: int) -> Op[Anomaly | None]:
    page = yield from anomalies(AnalyticsQuery(limit=1), id=id)
    return page.rows[0] if page.rows else None


def acknowledge(id: int, *, by: str | None, note: str | None, is_false_positive: bool = False) -> Op[Anomaly | None]:
    yield from acknowledge_all([id], by, note, is_false_positive=is_false_positive)
    return (yield from anomaly(id))


def acknowledge_all(ids: Sequence[int], by: str | None, note: str | None, *, is_false_positive: bool) -> Op[int]:
    marked = {"by": by, "note": note, "is_false_positive": is_false_positive}
    return bind("analytics/anomalies/acknowledge", value, ids=list(ids), **marked).run()


def mute(*, detector: str | None, queue: str | None, until: datetime | None, reason: str) -> Op[Mute]:
    if until is not None and until.tzinfo is None:
        raise InvalidInput(f"until needs a time zone: {until.isoformat()}")
    params = {"detector": detector, "queue": queue, "until": until, "reason": reason}
    id = yield from queue_id(queue)
    yield from bind("analytics/anomalies/mute_lock").run()
    (muted,) = yield from bind("analytics/anomalies/mute", each(made(Mute)), **params, queue_id=id).run()
    return muted


def mutes() -> Op[list[Mute]]:
    return bind("analytics/anomalies/mutes", each(made(Mute))).run()


def unmute(id: int) -> Op[bool]:
    return bind("analytics/anomalies/unmute", value, id=id).run()


def last_run(job: str, lake: str | None = None) -> Statement[PastRun | None]:
    return bind("analytics/last_run", first(made(PastRun)), job=job, lake=lake)


def bands(queue: str, metric: str) -> Op[list[Band]]:
    return rows_of(queue, "analytics/anomalies/bands", made(Band), {"metric": metric})


def runs(*, job: str | None = None, before: int | None = None, limit: int = 100) -> Op[list[PastRun]]:
    statement = bind("analytics/runs", each(_with_lock), job=job, before=before, limit=limited(limit))
    runs = yield from statement.run()
    return [run if is_locked or run.state != "running" else replace(run, state="lost") for run, is_locked in runs]


def lake_days(*, limit: int = 100) -> Op[dict[str, list[ArchivedDay]]]:
    def decode(rows: list[Row]) -> dict[str, list[ArchivedDay]]:
        lakes: dict[str, list[ArchivedDay]] = {}
        for row in rows:
            lakes.setdefault(row.lake, []).append(made(ArchivedDay)(row))
        return lakes

    return bind("analytics/archive/lake_days", decode, limit=limited(limit)).run()


def lake_files(
    *, since: date | None = None, until: date | None = None, queue: str | None = None, limit: int = 1_000
) -> Op[list[ArchivedFile]]:
    params = {"since": since, "until": until, "queue": queue, "limit": limited(limit)}

    def decode(row: Row) -> ArchivedFile:
        return ArchivedFile(row.lake, msgspec.convert(row._asdict() | {"checksum": int(row.checksum)}, LakeFile))

    return bind("analytics/archive/lake_files", each(decode), **params).run()


def last_runs(jobs: Sequence[str]) -> Op[list[PastRun]]:
    statement = bind("analytics/last_runs", each(_with_lock), jobs=list(jobs))
    runs = yield from statement.run()
    unlocked = {run.id for run, is_locked in runs if not is_locked}
    if unlocked:
        # The run may have ended between the reads of its row and its lock. Its end is recorded before the lock is released,
        # so a second read shows it.
        runs = yield from statement.run()
    return [replace(run, state="lost") if run.id in unlocked and run.state == "running" else run for run, _ in runs]


def rows_of(
    queue: str | None, verb: LiteralString, decode: Callable[[Row], R], params: Mapping[str, Any]
) -> Op[list[R]]:
    """The decoded rows of a statement for one queue or all."""
    id = yield from queue_id(queue)
    return (yield from bind(verb, each(decode), **params, queue_id=id).run())


def queue_id(queue: str | None) -> Op[int | None]:
    if queue is None:
        return None
    id = yield from bind("analytics/queue_id", value_or_none, queue=queue).run()
    if id is None:
        raise UnknownQueue(queue)
    return id


def limited(limit: int | None) -> int | None:
    """Check a limit. A too large one is refused, not lowered: a short page would be taken for the last one."""
    if limit is not None and not 0 <= limit <= MAX_ROWS:
        raise InvalidInput(f"limit must be from 0 to {MAX_ROWS:,}, not {limit:,}")
    return limit


def visible(patterns: Sequence[str] | None) -> dict[str, Any]:
    """The parameters of `_visible.sql`: names and prefixes of queues; None for all queues."""
    if patterns is None or "*" in patterns:
        return {"names": None, "prefixes": None}
    return {
        "names": [pattern for pattern in patterns if not pattern.endswith("*")],
        "prefixes": [pattern[:-1] for pattern in patterns if pattern.endswith("*")],
    }


def _page(
    query: AnalyticsQuery,
    job: str,
    verb: LiteralString,
    decode: Callable[[Row], R],
    order: Sequence[str],
    more: Mapping[str, Any] | None = None,
) -> Op[AnalyticsPage[R]]:
    """`order`: the columns of a position."""
    after = None if query.after is None else _parsed(query.after)
    position = attrgetter(*order)
    params = {
        **(more or {}),
        **visible(query.patterns),
        "since": query.since,
        "until": query.until,
        "limit": limited(query.limit),
        "after_at": after and after.at,
        "after_id": after and after.id,
        "after_text": after and after.text,
    }
    rows = yield from rows_of(query.queue, verb, lambda row: (decode(row), position(row)), params)
    is_full = bool(rows) and len(rows) == query.limit
    next_page = base64url(msgspec.json.encode(_Position(*rows[-1][1]))) if is_full else None
    run = yield from last_run(job).run()
    return AnalyticsPage(rows=[row for row, _ in rows], next=next_page, run=run)


def _parsed(text: str) -> _Position:
    try:
        position = msgspec.json.decode(base64url_data(text), type=_Position)
        return msgspec.structs.replace(position, at=position.at.astimezone(UTC))
    except (NotBase64, ValueError, OverflowError, msgspec.MsgspecError):
        raise InvalidInput("after: this is not the `next` of a page") from None


def _with_lock(row: Row) -> tuple[PastRun, bool]:
    return made(PastRun)(row), row.is_locked
