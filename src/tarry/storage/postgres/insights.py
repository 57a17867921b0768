"""What the pipeline has worked out, for code that awaits, over the connections that the store has anyway."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, LiteralString, Protocol, TypeVar

import msgspec

from tarry.core.anomalies import Anomaly, Mute, Severity
from tarry.core.errors import InvalidInput
from tarry.core.events import Event, EventKind
from tarry.core.insights import Asked, InsightPage
from tarry.core.serving import ConsumerHour, Forecast, MetricMinute
from tarry.storage.postgres import activity
from tarry.storage.postgres import insight_statements as insights
from tarry.storage.postgres.statement import Op, Row

R = TypeVar("R")


class Run(Protocol):
    """Drives an op on a connection of the store; a fresh one for every try. `atomic`: in one transaction."""

    def __call__(self, make: Callable[[], Op[R]], *, atomic: bool = False) -> Awaitable[R]: ...


class _After(msgspec.Struct, array_like=True, frozen=True):
    """The last row of a page, by what rows are ordered by."""

    at: datetime
    id: int
    text: str | None = None


class PostgresInsights:
    def __init__(self, run: Run) -> None:
        self._run = run

    async def activity(
        self, asked: Asked, *, kinds: Iterable[EventKind] | None = None, consumer: str | None = None
    ) -> InsightPage[Event]:
        def op() -> Op[InsightPage[Event]]:
            return activity.look_back(asked, _visible(asked.patterns), kinds, consumer)

        return await self._run(op, atomic=True)

    async def minutes(self, asked: Asked) -> InsightPage[MetricMinute]:
        def place(row: Row) -> _After:
            return _After(row[1], row[-1])

        return await self._run(lambda: _page(asked, "metrics", "pipeline_metrics", insights.minute, place))

    async def hours(self, asked: Asked) -> InsightPage[ConsumerHour]:
        def place(row: Row) -> _After:
            return _After(row[1], row[-1], row[2])

        return await self._run(lambda: _page(asked, "consumers", "pipeline_consumers", insights.hour, place))

    async def forecasts(self, asked: Asked) -> InsightPage[Forecast]:
        def op() -> Op[InsightPage[Forecast]]:
            rows = yield from insights.about(asked.queue, "pipeline_forecasts", insights.forecast, {})
            seen = [row for row in rows if _covers(asked.patterns, row.queue)]
            return InsightPage(rows=seen, run=(yield from insights.last_run("forecast").run()))

        return await self._run(op)

    async def anomalies(
        self,
        asked: Asked,
        *,
        detector: str | None = None,
        severity: Severity | None = None,
        acknowledged: bool | None = None,
    ) -> InsightPage[Anomaly]:
        more = {
            "detector": detector,
            "severity": None if severity is None else severity.value,
            "acknowledged": acknowledged,
        }

        def place(row: Row) -> _After:
            return _After(row[8], row[0])

        return await self._run(lambda: _page(asked, "anomalies", "pipeline_anomalies", insights.anomaly, place, more))

    async def anomaly(self, id: int) -> Anomaly | None:
        return await self._run(lambda: _anomaly(id))

    async def acknowledge(self, id: int, *, by: str | None, note: str | None) -> Anomaly | None:
        def op() -> Op[Anomaly | None]:
            yield from insights.acknowledge([id], by, note).run()
            return (yield from _anomaly(id))

        return await self._run(op)

    async def mute(self, *, detector: str | None, queue: str | None, until: datetime | None, reason: str) -> Mute:
        return await self._run(lambda: insights.mute(detector, queue, until, reason), atomic=True)

    async def mutes(self) -> list[Mute]:
        return await self._run(insights.mutes().run)

    async def unmute(self, id: int) -> bool:
        return await self._run(insights.unmute(id).run)


def _anomaly(id: int) -> Op[Anomaly | None]:
    params = {**insights.EVERYTHING, "detector": None, "severity": None, "acknowledged": None, "id": id, "limit": 1}
    found = yield from insights.about(None, "pipeline_anomalies", insights.anomaly, params)
    return found[0] if found else None


def _page(
    asked: Asked,
    job: str,
    verb: LiteralString,
    decode: Callable[[Row], R],
    place: Callable[[Row], _After],
    more: dict[str, Any] | None = None,
) -> Op[InsightPage[R]]:
    after = None if asked.after is None else _parsed(asked.after)
    params = {
        **insights.EVERYTHING,
        **(more or {}),
        **_visible(asked.patterns),
        "since": asked.since,
        "until": asked.until,
        "limit": insights.limited(asked.limit),
        "after_at": None if after is None else after.at,
        "after_id": None if after is None else after.id,
        "after_text": None if after is None else after.text,
    }
    rows = yield from insights.about(asked.queue, verb, lambda row: (decode(row), place(row)), params)
    following = _shown(rows[-1][1]) if rows and len(rows) == asked.limit else None
    run = yield from insights.last_run(job).run()
    return InsightPage(rows=[row for row, _ in rows], next=following, run=run)


def _visible(patterns: Sequence[str] | None) -> dict[str, Any]:
    if patterns is None or "*" in patterns:
        return {}
    return {
        "names": [one for one in patterns if not one.endswith("*")],
        "beginnings": [one[:-1] for one in patterns if one.endswith("*")],
    }


def _covers(patterns: Sequence[str] | None, queue: str) -> bool:
    said = _visible(patterns)
    return not said or queue in said["names"] or queue.startswith(tuple(said["beginnings"]))


def _shown(after: _After) -> str:
    return urlsafe_b64encode(msgspec.json.encode(after)).rstrip(b"=").decode()


def _parsed(text: str) -> _After:
    try:
        data = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        found = msgspec.json.decode(data, type=_After)
        at = found.at.astimezone(UTC) if found.at.tzinfo is not None else None
    except (NotBase64, ValueError, OverflowError, msgspec.MsgspecError):
        raise _not_ours() from None
    if at is None or not 0 <= found.id < 2**63 or "\x00" in (found.text or ""):
        raise _not_ours()
    return _After(at, found.id, found.text)


def _not_ours() -> InvalidInput:
    return InvalidInput("after: this is not the `next` of a page")
