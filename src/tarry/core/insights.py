"""What the pipeline has worked out, in pages and for readers who may not see every queue: the port behind the broker.

`core.serving` and `core.anomalies` say what the rows mean. A page says which run of its job was the last to end, because
no rows may mean that nothing happened, or that nobody has looked.
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
    """Which rows: of one queue (None: of any), of those that the reader may see (`patterns` of a key; None: all of them),
    between two instants, after the `next` of the page before."""

    queue: str | None = None
    patterns: Sequence[str] | None = None
    since: datetime | None = None
    until: datetime | None = None
    after: str | None = None
    limit: int = 100

    def covers(self, queue: str, at: datetime) -> bool:
        """What the SQL says, for stores without SQL."""
        return (
            self.queue in (None, queue)
            and (self.patterns is None or any(fits(pattern, queue) for pattern in self.patterns))
            and (self.since is None or at >= self.since)
            and (self.until is None or at < self.until)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class InsightPage(Generic[R]):
    """The newest first."""

    rows: list[R]
    next: str | None = None
    run: PastRun | None = None
    """The last run of the job that ended well. None: there was none, and so nothing can be there."""


class Insights(Protocol):
    async def activity(
        self, asked: Asked, *, kinds: Iterable[EventKind] | None = None, consumer: str | None = None
    ) -> InsightPage[Event]:
        """The journal itself, the newest first and without payloads. A page may be short, or empty, and yet have a `next`:
        a look goes through so many events, wanted or not."""
        ...

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

    def __init__(self, journal: Callable[[], Sequence[Event]], known: Callable[[str], object]) -> None:
        """`journal`: every event, the oldest first; `known` raises where there is no queue of a name."""
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
