"""Pipeline results as the API and the command line read them.

Durations are seconds as floats: they are drawn and printed, not added to instants."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, NamedTuple

from msgspec import Meta


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Percentiles in seconds."""

    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRow:
    """What all results of the pipeline about one queue have in common."""

    queue: str
    run_id: Annotated[int, Meta(description="The run that wrote it.")]
    fresh_at: Annotated[datetime, Meta(description="The end of the data that the run read.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricMinute(PipelineRow):
    """One minute of one queue. Minutes without events have no row; their depth is that of the minute before."""

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
    discarded: int
    refused: int
    bytes_offered: int
    lag: Annotated[Quantiles | None, Meta(description="Seconds from deliverable to leased.")]
    wait: Quantiles | None
    """From the offer to the lease, including the requested delay."""
    processing: Quantiles | None
    """From the lease to the ack or nack."""
    depth: int
    """Live messages at the end of the minute."""
    dead: int
    exact: bool
    """Whether the percentiles are exact; in busy minutes their values may be off by 1 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSpan:
    """Minutes of one queue over a time span: the weighted median of their p50, and the worst p95 and p99."""

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
class ConsumerHour(PipelineRow):
    """One hour of one consumer in one queue."""

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
class Forecast(PipelineRow):
    """The forecast of one queue for the next days."""

    planned: int
    retries: int
    capacity: float | None
    """Messages per minute; None if nothing was acked recently."""
    saturated_at: datetime | None
    recovered_at: datetime | None
    peak_backlog: float
    peak_at: datetime | None
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentQueue:
    """The current state of a queue."""

    queue_id: int
    queue: str
    ready: int
    leased: int
    target_lag_s: float
    paused: bool


class Planned(NamedTuple):
    """Number of live messages of a queue that come due in one minute, and how many of them are retries."""

    queue_id: int
    minute: datetime
    planned: int
    retries: int


class Outlook(NamedTuple):
    """The future load known from the live table, at one instant."""

    standings: tuple[CurrentQueue, ...]
    planned: tuple[Planned, ...]


class Table(StrEnum):
    """The published tables."""

    METRICS = "metrics"
    CONSUMERS = "consumers"
    FORECASTS = "forecasts"
    FORECAST_MINUTES = "forecast_minutes"
    BANDS = "bands"
