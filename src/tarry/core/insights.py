"""Results of the pipeline in pages, for readers restricted to some queues: the port behind the broker.

`core.serving` and `core.anomalies` define the rows. A page contains the last completed run of its job, because an empty
page may mean that nothing happened, or that the job has not run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Generic, Protocol, TypeVar

from tarry.core.anomalies import Anomaly, Mute, Severity
from tarry.core.errors import InvalidInput, Refused
from tarry.core.events import Event, EventKind
from tarry.core.keys import fits
from tarry.core.pipeline import PastRun
from tarry.core.serving import ConsumerHour, Forecast, MetricMinute

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A query: of one queue (None: any), of the queues visible to the reader (`patterns` of a key; None: all), between
    two instants, after the `next` of the previous page.
    """

    queue: str | None = None
    patterns: Sequence[str] | None = None
    since: datetime | None = None
    until: datetime | None = None
    after: str | None = None
    limit: int = 100

    def covers(self, queue: str, at: datetime) -> bool:
        """The filter of the SQL, for stores without SQL."""
        return (
            self.queue in (None, queue)
            and (self.patterns is None or any(fits(pattern, queue) for pattern in self.patterns))
            and (self.since is None or at >= self.since)
            and (self.until is None or at < self.until)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class InsightPage(Generic[R]):
    """A page of rows, newest first."""

    rows: list[R]
    next: str | None = None
    run: PastRun | None = None
    """The last successful run of the job. None: it has never run, so there are no rows."""


class Insights(Protocol):
    async def activity(
        self, asked: Asked, *, kinds: Iterable[EventKind] | None = None, consumer: str | None = None
    ) -> InsightPage[Event]:
        """The journal, newest first and without payloads. A page may be short or empty and still have a `next`: each
        query scans a bounded number of events, matching or not.
        """
        ...

    async def minutes(self, asked: Asked) -> InsightPage[MetricMinute]: ...
    async def hours(self, asked: Asked) -> InsightPage[ConsumerHour]: ...
    async def forecasts(self, asked: Asked) -> InsightPage[Forecast]:
        """One row per queue, earliest saturation first. Limit and instants are ignored."""
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
        """Acknowledge an anomaly; the first acknowledgement is kept."""
        ...

    async def mute(self, *, detector: str | None, queue: str | None, until: datetime | None, reason: str) -> Mute: ...
    async def mutes(self) -> list[Mute]: ...
    async def unmute(self, id: int) -> bool: ...


class NoInsights:
    """Insights for stores without a database: the pipeline never runs there."""

    def __init__(self, journal: Callable[[], Sequence[Event]], known: Callable[[str], object]) -> None:
        """`journal`: every event, oldest first; `known` raises if there is no queue of the name."""
        self._journal = journal
        self._known = known

    async def activity(
        self, asked: Asked, *, kinds: Iterable[EventKind] | None = None, consumer: str | None = None
    ) -> InsightPage[Event]:
        wanted = frozenset(kinds or EventKind)
        before = _number(asked.after)
        if asked.queue is not None:
            self._known(asked.queue)
        found = [
            replace(event, payload=None)
            for event in reversed(self._journal())
            if event.kind in wanted
            and (before is None or event.id < before)
            and asked.covers(event.queue, event.at)
            and consumer in (None, event.consumer)
        ]
        rows = found[: asked.limit]
        return InsightPage(rows=rows, next=str(rows[-1].id) if rows and len(found) > len(rows) else None)

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


def _number(after: str | None) -> int | None:
    if after is None or (after.isascii() and after.isdigit() and len(after) < 20):
        return None if after is None else int(after)
    raise InvalidInput("after: this is not the `next` of a page")
