"""Results of the pipeline: minutes of queues, hours of consumers, forecasts, anomalies, mutes."""

from __future__ import annotations

from typing import Annotated, Any, Self

from msgspec import Meta

from tarry.core.analytics.anomalies import Severity
from tarry.wire.base import At, Duration, QueueName, Request, Response

Note = Annotated[str, Meta(max_length=1_000)]
Detector = Annotated[str, Meta(min_length=1, max_length=100)]


class AckRequest(Request):
    note: Annotated[Note | None, Meta(description="Why it needs no action.")] = None


class MuteRequest(Request, kw_only=True):
    detector: Annotated[Detector | None, Meta(description="Of this detector; else of any.")] = None
    queue: Annotated[QueueName | None, Meta(description="In this queue; else in any.")] = None
    mute_for: Annotated[Duration | None, Meta(description="Else until it is ended.")] = None
    reason: Annotated[str, Meta(min_length=1, max_length=1_000)]


class Run(Response):
    id: int
    started_at: At
    ended_at: At | None


class Results(Response):
    run: Annotated[Run | None, Meta(description="The last successful run of the job. null: it never ran.")]

    @classmethod
    def of_core(cls, value: Any, /, **fields: Any) -> Self:
        return super().of_core(value, run=None if value.run is None else Run.of(value.run), **fields)


class ResultsPage(Results, kw_only=True):
    next: Annotated[str | None, Meta(description="For `after`, if there may be more.")]


class Quantiles(Response):
    p50: float
    p95: float
    p99: float


class Row(Response):
    queue: str
    run_id: Annotated[int, Meta(description="The run that wrote it.")]
    fresh_at: Annotated[At, Meta(description="The end of the data that the run read.")]


class Minute(Row):
    minute: At
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
    processing: Quantiles | None
    depth: int
    dead: int
    exact: bool


class Minutes(ResultsPage, kw_only=True):
    minutes: list[Minute]


class ConsumerHour(Row):
    consumer: str
    hour: At
    leased: int
    acked: int
    failed: int
    expired: int
    released: int
    success_rate: float | None
    share: float | None
    processing: Quantiles | None
    exact: bool


class Consumers(ResultsPage, kw_only=True):
    consumers: list[ConsumerHour]


class Forecast(Row):
    planned: int
    retries: int
    capacity: float | None
    saturated_at: At | None
    recovered_at: At | None
    peak_backlog: float
    peak_at: At | None
    sentence: str


class Forecasts(Results, kw_only=True):
    forecasts: list[Forecast]


class Anomaly(Row):
    id: int
    detector: str
    detector_version: int
    severity: Severity
    key: str | None
    consumer: str | None
    window_from: At
    window_to: At
    sentence: str
    observed: float | None
    expected_low: float | None
    expected_high: float | None
    score: float | None
    evidence: str
    fingerprint: str
    raised_at: At
    acknowledged_at: At | None
    acknowledged_by: str | None
    note: str | None


class Anomalies(ResultsPage, kw_only=True):
    anomalies: list[Anomaly]


class Mute(Response):
    id: int
    detector: str | None
    queue: str | None
    until: At | None
    reason: str
    muted_at: At


class Mutes(Response):
    mutes: list[Mute]


class Unmuted(Response):
    id: int
    unmuted: bool
