"""The content of a report, worked out from what the pipeline serves. Plain values in, plain values out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from tarry.core.pipeline import PastRun
from tarry.core.serving import ConsumerHour, Forecast, ForecastMinute, MetricMinute, Quantiles

MOST_BUCKETS = 96
FEWEST_BUCKETS = 12
_STEPS = tuple(
    timedelta(minutes=minutes) for minutes in (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 10080, 40320)
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SEVERITIES = ("critical", "warning", "info")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """A stretch of time of one queue. Percentiles of its minutes cannot be merged: p50 is that of the busiest minutes
    (their median, weighted by leases), p95 and p99 are those of the worst minute."""

    start: datetime
    offered: int = 0
    leased: int = 0
    acked: int = 0
    nacked: int = 0
    expired: int = 0
    buried: int = 0
    lag: Quantiles | None = None
    depth: int | None = None
    """At its end; None before anything is known."""
    partial: bool = False
    """It has not ended yet: less than a whole one, and not a fall."""

    @property
    def failed(self) -> int:
        """Attempts. A burial is not one more: the nack or the lease before it was."""
        return self.nacked + self.expired


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerLine:
    consumer: str
    leased: int
    acked: int
    failed: int
    expired: int
    success_rate: float | None
    share: float | None
    slowest_p95_s: float | None
    """Processing time: the p95 of its worst hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBucket:
    start: datetime
    planned: int
    retries: int
    backlog: float
    """The largest in this stretch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueReport:
    queue: str
    step: timedelta
    buckets: tuple[Bucket, ...]
    lag: Quantiles | None
    processing: Quantiles | None
    dead: int
    consumers: tuple[ConsumerLine, ...]
    forecast: Forecast | None
    planned_step: timedelta
    planned: tuple[PlannedBucket, ...]

    def total(self, name: str) -> int:
        return sum(getattr(bucket, name) for bucket in self.buckets)

    @property
    def depth(self) -> int:
        return next((bucket.depth for bucket in reversed(self.buckets) if bucket.depth is not None), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """An anomaly, as far as a report tells of it."""

    id: str
    at: datetime
    severity: str
    detector: str
    queue: str | None
    sentence: str
    observed: str | None = None
    expected: str | None = None
    evidence: str | None = None
    times: int = 1
    acknowledged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    made_at: datetime
    since: datetime
    until: datetime
    queues: tuple[QueueReport, ...]
    findings: tuple[Finding, ...]
    runs: tuple[PastRun, ...]
    fresh_at: datetime | None
    notes: tuple[str, ...] = ()
    """What is missing, and how to get it."""

    def total(self, name: str) -> int:
        return sum(queue.total(name) for queue in self.queues)


def report_of(
    *,
    metrics: Sequence[MetricMinute] = (),
    consumers: Sequence[ConsumerHour] = (),
    forecasts: Sequence[Forecast] = (),
    forecast_minutes: Sequence[ForecastMinute] = (),
    findings: Sequence[Finding] = (),
    runs: Sequence[PastRun] = (),
    since: datetime,
    until: datetime,
    made_at: datetime,
    notes: Sequence[str] = (),
) -> Report:
    first = min((metric.minute for metric in metrics), default=since)
    starts, step = axis(max(since, first), until)
    ahead = [minute.minute for minute in forecast_minutes if minute.planned or minute.backlog]
    planned_starts, planned_step = axis(min(ahead, default=until), max(ahead, default=until) + _STEPS[0])
    names = sorted({row.queue for rows in (metrics, consumers, forecasts) for row in rows})
    queues = tuple(
        _queue(
            name,
            [metric for metric in metrics if metric.queue == name],
            [hour for hour in consumers if hour.queue == name],
            next((forecast for forecast in forecasts if forecast.queue == name), None),
            [minute for minute in forecast_minutes if minute.queue == name],
            (starts, step, until),
            (planned_starts, planned_step),
        )
        for name in names
    )
    rank = {severity: place for place, severity in enumerate(SEVERITIES)}
    return Report(
        made_at=made_at,
        since=since,
        until=until,
        queues=queues,
        findings=tuple(
            sorted(findings, key=lambda found: (found.acknowledged, rank.get(found.severity, 9), -found.at.timestamp()))
        ),
        runs=tuple(runs),
        fresh_at=max((row.fresh_at for rows in (metrics, consumers, forecasts) for row in rows), default=None),
        notes=tuple(notes),
    )


def axis(since: datetime, until: datetime) -> tuple[list[datetime], timedelta]:
    """The starts of equal stretches that cover the time, as many as can be drawn, on round instants."""
    step = next((step for step in _STEPS if (until - since) / step < MOST_BUCKETS), _STEPS[-1])
    first, last = floored(since, step), floored(until - timedelta(microseconds=1), step)
    first = min(first, last - (FEWEST_BUCKETS - 1) * step)
    return [first + n * step for n in range(int((last - first) / step) + 1)], step


def floored(at: datetime, step: timedelta) -> datetime:
    return at - (at - _EPOCH) % step


def _queue(
    name: str,
    metrics: Sequence[MetricMinute],
    consumers: Sequence[ConsumerHour],
    forecast: Forecast | None,
    minutes: Sequence[ForecastMinute],
    past: tuple[Sequence[datetime], timedelta, datetime],
    future: tuple[Sequence[datetime], timedelta],
) -> QueueReport:
    starts, step, until = past
    return QueueReport(
        queue=name,
        step=step,
        buckets=tuple(_bucketed(metrics, starts, step, until)),
        lag=summarised((metric.lag, metric.leased) for metric in metrics),
        processing=summarised((metric.processing, metric.acked + metric.nacked) for metric in metrics),
        dead=metrics[-1].dead if metrics else 0,
        consumers=tuple(_consumer_lines(consumers)),
        forecast=forecast,
        planned_step=future[1],
        planned=tuple(_planned(minutes, *future)) if minutes else (),
    )


def _bucketed(
    metrics: Sequence[MetricMinute], starts: Sequence[datetime], step: timedelta, until: datetime
) -> Iterable[Bucket]:
    by_start = _grouped(metrics, step)
    depth: int | None = None
    for start in starts:
        inside = by_start.get(start, [])
        depth = inside[-1].depth if inside else depth
        yield Bucket(
            start=start,
            lag=summarised((metric.lag, metric.leased) for metric in inside),
            depth=depth,
            partial=start + step > until,
            **{
                name: sum(getattr(metric, name) for metric in inside)
                for name in ("offered", "leased", "acked", "nacked", "expired", "buried")
            },
        )


def _planned(minutes: Sequence[ForecastMinute], starts: Sequence[datetime], step: timedelta) -> Iterable[PlannedBucket]:
    by_start = _grouped(minutes, step)
    for start in starts:
        inside = by_start.get(start, [])
        yield PlannedBucket(
            start=start,
            planned=sum(minute.planned for minute in inside),
            retries=sum(minute.retries for minute in inside),
            backlog=max((minute.backlog for minute in inside), default=0.0),
        )


def _grouped(rows: Sequence[Any], step: timedelta) -> Mapping[datetime, list[Any]]:
    found: dict[datetime, list[Any]] = {}
    for row in sorted(rows, key=lambda row: row.minute):
        found.setdefault(floored(row.minute, step), []).append(row)
    return found


def summarised(minutes: Iterable[tuple[Quantiles | None, int]]) -> Quantiles | None:
    """The typical p50, and the worst p95 and p99, of minutes with their weights."""
    known = [(quantiles, max(weight, 1)) for quantiles, weight in minutes if quantiles is not None]
    if not known:
        return None
    half = sum(weight for _, weight in known) / 2
    passed, typical = 0, 0.0
    for quantiles, weight in sorted(known, key=lambda pair: pair[0].p50):
        passed += weight
        typical = quantiles.p50
        if passed >= half:
            break
    return Quantiles(typical, max(q.p95 for q, _ in known), max(q.p99 for q, _ in known))


def _consumer_lines(hours: Sequence[ConsumerHour]) -> list[ConsumerLine]:
    by_name: dict[str, list[ConsumerHour]] = {}
    for hour in hours:
        by_name.setdefault(hour.consumer, []).append(hour)
    leased = sum(hour.leased for hour in hours)
    lines = [_consumer_line(name, own, leased) for name, own in by_name.items()]
    return sorted(lines, key=lambda line: (-line.leased, line.consumer))


def _consumer_line(name: str, hours: Sequence[ConsumerHour], leased_by_all: int) -> ConsumerLine:
    leased, acked, failed, expired = (
        sum(getattr(hour, what) for hour in hours) for what in ("leased", "acked", "failed", "expired")
    )
    ended = acked + failed + expired
    return ConsumerLine(
        consumer=name,
        leased=leased,
        acked=acked,
        failed=failed,
        expired=expired,
        success_rate=acked / ended if ended else None,
        share=leased / leased_by_all if leased_by_all else None,
        slowest_p95_s=max((hour.processing.p95 for hour in hours if hour.processing), default=None),
    )
