"""What the pipeline has worked out, as the dashboard, the API and the command line read it; and the port that serves it.

Durations are seconds as floats: they are drawn and printed, not added to instants.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Seconds."""

    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricMinute:
    """One minute of one queue. A minute in which nothing happened has none; the depth is that of the one before it."""

    queue: str
    minute: datetime
    offered: int
    updated: int
    redriven: int
    leased: int
    acked: int
    nacked: int
    released: int
    expired: int
    buried: int
    dropped: int
    purged: int
    refused: int
    bytes_offered: int
    lag: Quantiles | None
    """Delivery lag: from when a message could have been delivered until it was leased."""
    wait: Quantiles | None
    """From the offer to the lease, the wanted delay included."""
    processing: Quantiles | None
    """From the lease to the ack or nack."""
    depth: int
    """Live messages at the end of the minute."""
    dead: int
    exact: bool
    """Whether the percentiles are exact; in very busy minutes their rank may be off by 0.01 %."""
    run_id: int
    fresh_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSpan:
    """What the minutes of one queue in a stretch of time come to. Of their percentiles: the typical p50 (the median of the
    minutes, weighted), and the worst p95 and p99."""

    queue: str
    minute: datetime
    """The first in which something happened."""
    offered: int
    leased: int
    acked: int
    nacked: int
    expired: int
    buried: int
    depth: int
    """At the end of the last minute, as `dead`."""
    dead: int
    lag: Quantiles | None
    processing: Quantiles | None
    fresh_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHour:
    """One hour of one consumer in one queue."""

    queue: str
    consumer: str
    hour: datetime
    leased: int
    acked: int
    failed: int
    expired: int
    released: int
    success_rate: float | None
    """Acks among what ended in this hour: acked, failed or expired. None if nothing did."""
    share: float | None
    """Of the leases of the queue in this hour."""
    processing: Quantiles | None
    exact: bool
    run_id: int
    fresh_at: datetime


class FactOutcome(StrEnum):
    """How a version ended."""

    DONE = "done"
    DEAD = "dead"
    DROPPED = "dropped"
    SUPERSEDED = "superseded"
    """A later version replaced it."""
    REDRIVEN = "redriven"
    """It was dead, and lives on as another version."""
    UNKNOWN = "unknown"
    """It ended while the journal of its queue was off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFact:
    """One version of one message that has ended."""

    queue: str
    key: str
    version: int
    origin: int | None
    """The dead version that it was redriven from."""
    priority: int | None
    size: int | None
    offered_at: datetime | None
    due_at: datetime | None
    first_leased_at: datetime | None
    settled_at: datetime
    outcome: FactOutcome
    reason: str | None
    attempts: int
    redeliveries: int
    """How often it was delivered again because a lease ran out."""
    wait_s: float | None
    processing_s: float
    consumer: str | None
    last_error: str | None
    run_id: int
    fresh_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastMinute:
    """One minute to come. Those in which nothing comes due and nothing waits are left out."""

    queue: str
    minute: datetime
    planned: int
    retries: int
    """How many of the planned are retries."""
    backlog: float
    lag_s: float | None
    saturated: bool | None
    run_id: int
    fresh_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastSpan:
    """What the minutes to come of one queue in a stretch of time come to."""

    queue: str
    minute: datetime
    """The first in which something comes due or waits."""
    last_minute: datetime
    planned: int
    retries: int
    backlog: float
    """The largest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What the next days hold for one queue."""

    queue: str
    planned: int
    retries: int
    capacity: float | None
    """Messages a minute; None where nothing was acked lately."""
    saturated_at: datetime | None
    recovered_at: datetime | None
    peak_backlog: float
    peak_at: datetime | None
    sentence: str
    run_id: int
    fresh_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a queue stands now."""

    queue_id: int
    queue: str
    ready: int
    leased: int
    target_lag_s: float
    paused: bool


@dataclass(frozen=True, slots=True)
class Planned:
    """How many live messages of one queue come due in one minute, and how many of them are retries."""

    queue_id: int
    minute: datetime
    planned: int
    retries: int


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the live table knows of the future, at one instant."""

    standings: tuple[Standing, ...]
    planned: tuple[Planned, ...]


@dataclass(frozen=True, slots=True)
class Level:
    """Live and dead messages of a queue at some moment, or how these grew on one day."""

    queue_id: int
    depth: int
    dead: int


class Table(StrEnum):
    """The tables that people read."""

    METRICS = "metrics"
    CONSUMERS = "consumers"
    FACTS = "facts"
    FORECASTS = "forecasts"
    FORECAST_MINUTES = "forecast_minutes"


class Reading(Protocol):
    """Newest rows win where there are more than `limit`; what comes back is in the order of time. `queue=None`: all."""

    def metrics(
        self, queue: str | None, since: datetime, until: datetime, *, limit: int = 10_000
    ) -> list[MetricMinute]: ...
    def metric_spans(
        self, queue: str | None, since: datetime, until: datetime, step: timedelta | None
    ) -> list[MetricSpan]:
        """Every minute is in it, however many there are: in stretches of this length, or as a whole (None)."""
        ...

    def consumers(
        self, queue: str | None, since: datetime, until: datetime, *, limit: int | None = 1_000
    ) -> list[ConsumerHour]:
        """`limit=None`: all."""
        ...

    def facts(
        self,
        queue: str | None,
        since: datetime,
        until: datetime,
        *,
        outcome: FactOutcome | None = None,
        limit: int = 1_000,
    ) -> list[MessageFact]:
        """By when they ended."""
        ...

    def forecasts(self, queue: str | None = None) -> list[Forecast]: ...
    def forecast_minutes(self, queue: str | None, *, limit: int = 10_080) -> list[ForecastMinute]:
        """The first ones."""
        ...

    def forecast_spans(self, queue: str | None, step: timedelta | None) -> list[ForecastSpan]:
        """As `metric_spans`."""
        ...


class Serving(Reading, Protocol):
    """Reading, and what the jobs need to fill it. Every method is one short transaction, or several that may be repeated."""

    def put(self, table: Table, rows: Iterable[str]) -> int:
        """Write rows, given as JSON objects with every column, and say how many were new or different."""
        ...

    def keep_forecast(self, run_id: int) -> int:
        """Forget every forecast but that of this run."""
        ...

    def forget_facts(self, before: datetime) -> int:
        """Remove facts of versions that ended before, in small steps."""
        ...

    def levels_before(self, lake: str, day: date) -> list[Level]:
        """Where each queue stood when this day began."""
        ...

    def put_levels(self, lake: str, days: Mapping[date, Sequence[Level]]) -> None:
        """By how much queues grew on these days, as a whole for each day."""
        ...

    def outlook(self, now: datetime, until: datetime) -> Outlook: ...
