"""What the pipeline has worked out, in pages and for readers who may not see every queue: the port behind the broker.

`core.serving` and `core.anomalies` say what the rows mean. A page says which run of its job was the last to end, because
no rows may mean that nothing happened, or that nobody has looked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Protocol, TypeVar

from tarry.core.anomalies import Anomaly, Mute, Severity
from tarry.core.errors import Refused
from tarry.core.pipeline import PastRun
from tarry.core.serving import ConsumerHour, Forecast, MetricMinute

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Which rows: of one queue (None: of any), of those that the reader may see (`patterns` of a key; None: all of them),
    between two instants, after the `next` of the page before."""

    queue: str | None = None
    patterns: Sequence[str] | None = None
    since: datetime | None = None
    until: datetime | None = None
    after: str | None = None
    limit: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class InsightPage(Generic[R]):
    """The newest first."""

    rows: list[R]
    next: str | None = None
    run: PastRun | None = None
    """The last run of the job that ended well. None: there was none, and so nothing can be there."""


class Insights(Protocol):
    async def minutes(self, asked: Asked) -> InsightPage[MetricMinute]: ...
    async def hours(self, asked: Asked) -> InsightPage[ConsumerHour]: ...
    async def forecasts(self, asked: Asked) -> InsightPage[Forecast]:
        """One row for each queue: who falls behind first comes first. The limit and the instants do not matter."""
        ...

    async def anomalies(
        self,
        asked: Asked,
        *,
        detector: str | None = None,
        severity: Severity | None = None,
        acknowledged: bool | None = None,
    ) -> InsightPage[Anomaly]: ...
    async def anomaly(self, id: int) -> Anomaly | None: ...
    async def acknowledge(self, id: int, *, by: str | None, note: str | None) -> Anomaly | None:
        """Seen by somebody; the first one to say so is remembered."""
        ...

    async def mute(self, *, detector: str | None, queue: str | None, until: datetime | None, reason: str) -> Mute: ...
    async def mutes(self) -> list[Mute]: ...
    async def unmute(self, id: int) -> bool: ...


class NoInsights:
    """Where there is no database, no pipeline has ever run."""

    async def minutes(self, asked: Asked) -> InsightPage[MetricMinute]:
        return InsightPage(rows=[])

    async def hours(self, asked: Asked) -> InsightPage[ConsumerHour]:
        return InsightPage(rows=[])

    async def forecasts(self, asked: Asked) -> InsightPage[Forecast]:
        return InsightPage(rows=[])

    async def anomalies(
        self,
        asked: Asked,
        *,
        detector: str | None = None,
        severity: Severity | None = None,
        acknowledged: bool | None = None,
    ) -> InsightPage[Anomaly]:
        return InsightPage(rows=[])

    async def anomaly(self, id: int) -> Anomaly | None:
        return None

    async def acknowledge(self, id: int, *, by: str | None, note: str | None) -> Anomaly | None:
        return None

    async def mute(self, *, detector: str | None, queue: str | None, until: datetime | None, reason: str) -> Mute:
        raise Refused("nothing can be muted: the memory store has no data pipeline", hint="tarry serve on PostgreSQL")

    async def mutes(self) -> list[Mute]:
        return []

    async def unmute(self, id: int) -> bool:
        return False
