"""The shapes of what the pipeline has worked out, for the OpenAPI document."""

from __future__ import annotations

from pydantic import Field

from tarry.core.anomalies import Severity
from tarry.edges.http.answers import Answer, At


class Run(Answer):
    id: int
    started_at: At
    ended_at: At | None


class Insight(Answer):
    run: Run | None = Field(description="The last run of the job that ended well. null: it never ran.")


class Page(Insight):
    next: str | None = Field(description="For `after`, if there may be more.")


class Quantiles(Answer):
    p50: float
    p95: float
    p99: float


class Row(Answer):
    queue: str
    run_id: int = Field(description="The run that wrote it.")
    fresh_at: At = Field(description="Up to when it had looked.")


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
    purged: int
    refused: int
    bytes_offered: int
    lag: Quantiles | None = Field(description="Seconds from deliverable to leased.")
    wait: Quantiles | None
    processing: Quantiles | None
    depth: int
    dead: int
    exact: bool


class Minutes(Page):
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


class Consumers(Page):
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


class Forecasts(Insight):
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


class Anomalies(Page):
    anomalies: list[Anomaly]


class Mute(Answer):
    id: int
    detector: str | None
    queue: str | None
    until: At | None
    reason: str
    muted_at: At


class Mutes(Answer):
    mutes: list[Mute]


class Unmuted(Answer):
    id: int
    unmuted: bool
