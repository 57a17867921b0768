"""Results of the pipeline as read by the dashboard, the API and the command line, and the port that serves them.

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
    """Percentiles in seconds."""

    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricMinute:
    """One minute of one queue. Minutes without events have no row; their depth is that of the minute before."""

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
    """Delivery lag: from the time a message could have been delivered to its lease."""
    wait: Quantiles | None
    """From the offer to the lease, including the requested delay."""
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
    """Minutes of one queue aggregated over a time span. Percentiles: the typical p50 (the weighted median of the
    minutes) and the worst p95 and p99.
    """

    queue: str
    minute: datetime
    """The first minute with events."""
    offered: int
    leased: int
    acked: int
    nacked: int
    expired: int
    buried: int
    depth: int
    """At the end of the last minute, like `dead`."""
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
    """Acks among the messages that ended in this hour: acked, failed or expired. None if there were none."""
    share: float | None
    """Share of the queue's leases in this hour."""
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
    """Replaced by a later version."""
    REDRIVEN = "redriven"
    """It was dead and was redriven as another version."""
    UNKNOWN = "unknown"
    """It ended while the journal of its queue was off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFact:
    """One ended version of one message."""

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
    """Deliveries after an expired lease."""
    wait_s: float | None
    processing_s: float
    consumer: str | None
    last_error: str | None
    run_id: int
    fresh_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastMinute:
    """One future minute. Minutes without load and backlog are left out."""

    queue: str
    minute: datetime
    planned: int
    retries: int
    """Retries among the planned messages."""
    backlog: float
    lag_s: float | None
    saturated: bool | None
    run_id: int
    fresh_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastSpan:
    """Future minutes of one queue aggregated over a time span."""

    queue: str
    minute: datetime
    """The first minute with load or backlog."""
    last_minute: datetime
    planned: int
    retries: int
    backlog: float
    """The maximum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The forecast of one queue for the next days."""

    queue: str
    planned: int
    retries: int
    capacity: float | None
    """Messages per minute; None if nothing was acked recently."""
    saturated_at: datetime | None
    recovered_at: datetime | None
    peak_backlog: float
    peak_at: datetime | None
    sentence: str
    run_id: int
    fresh_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The current state of a queue."""

    queue_id: int
    queue: str
    ready: int
    leased: int
    target_lag_s: float
    paused: bool


@dataclass(frozen=True, slots=True)
class Planned:
    """Number of live messages of a queue that come due in one minute, and how many of them are retries."""

    queue_id: int
    minute: datetime
    planned: int
    retries: int


@dataclass(frozen=True, slots=True)
class Outlook:
    """The future load known from the live table, at one instant."""

    standings: tuple[Standing, ...]
    planned: tuple[Planned, ...]


@dataclass(frozen=True, slots=True)
class Level:
    """Live and dead messages of a queue at an instant, or their change over one day."""

    queue_id: int
    depth: int
    dead: int


class Table(StrEnum):
    """The published tables."""

    METRICS = "metrics"
    CONSUMERS = "consumers"
    FACTS = "facts"
    FORECASTS = "forecasts"
    FORECAST_MINUTES = "forecast_minutes"


class Reading(Protocol):
    """Read access. If there are more rows than `limit`, the newest; returned in ascending order. `queue=None`: all
    queues.
    """

    def metrics(
        self, queue: str | None, since: datetime, until: datetime, *, limit: int = 10_000
    ) -> list[MetricMinute]: ...
    def metric_spans(
        self, queue: str | None, since: datetime, until: datetime, step: timedelta | None
    ) -> list[MetricSpan]:
        """Aggregates all minutes: in spans of length `step`, or as a whole (None)."""
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
        """By the time of their end."""
        ...

    def forecasts(self, queue: str | None = None) -> list[Forecast]: ...
    def forecast_minutes(self, queue: str | None, *, limit: int = 10_080) -> list[ForecastMinute]:
        """The first minutes within the limit."""
        ...

    def forecast_spans(self, queue: str | None, step: timedelta | None) -> list[ForecastSpan]:
        """Like `metric_spans`."""
        ...


class Serving(Reading, Protocol):
    """Read access, and the writes of the jobs. Every method is one short transaction, or several repeatable ones."""

    def put(self, table: Table, rows: Iterable[str]) -> int:
        """Upsert rows given as JSON objects with every column; returns how many were new or different."""
        ...

    def keep_forecast(self, run_id: int) -> int:
        """Delete every forecast except that of this run."""
        ...

    def forget_facts(self, before: datetime) -> int:
        """Delete facts of versions that ended before, in small chunks."""
        ...

    def levels_before(self, lake: str, day: date) -> list[Level]:
        """The depth of each queue at the start of this day."""
        ...

    def put_levels(self, lake: str, days: Mapping[date, Sequence[Level]]) -> None:
        """Replace the changes in depth on these days."""
        ...

    def outlook(self, now: datetime, until: datetime) -> Outlook: ...
