"""The content of a report, computed from the published results. Plain values in, plain values out."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from operator import attrgetter
from typing import NamedTuple, TypeVar

from tarry.core.analytics.anomalies import Anomaly, Severity
from tarry.core.analytics.manifest import PastRun
from tarry.core.analytics.metrics import ConsumerHour, Forecast, ForecastSpan, MetricSpan, Quantiles
from tarry.core.durations import floored
from tarry.edges.spark.report.words import count, seconds, share

K = TypeVar("K")
R = TypeVar("R")

MOST_BUCKETS = 96
FEWEST_BUCKETS = 12
_STEPS = tuple(
    timedelta(minutes=minutes) for minutes in (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 10080, 40320)
)
_COUNTS = ("offered", "leased", "acked", "nacked", "expired", "buried")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """A time span of one queue, with percentiles as in `MetricSpan`."""

    start: datetime
    offered: int = 0
    leased: int = 0
    acked: int = 0
    nacked: int = 0
    expired: int = 0
    buried: int = 0
    lag: Quantiles | None = None
    depth: int | None = None
    """At the end of the span; None before the first known value."""
    partial: bool = False
    """The span is incomplete: lower counts are not a decline."""

    @property
    def failed(self) -> int:
        """Failed attempts. A burial does not add one: the nack or the expiry before it counts."""
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

    @property
    def cells(self) -> list[str]:
        """The fields as text, with the success rate after the counts."""
        counts = [count(n) for n in (self.acked, self.failed, self.expired)]
        rates = [share(self.success_rate), seconds(self.slowest_p95_s)]
        return [self.consumer, count(self.leased), share(self.share), *counts, *rates]


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
    planned: tuple[ForecastSpan, ...]
    """One per span of its axis."""

    def total(self, name: str) -> int:
        return sum(getattr(bucket, name) for bucket in self.buckets)

    def counts(self, name: str) -> list[int | None]:
        """A count per span; None for an incomplete span, which would look like a decline."""
        return [None if bucket.partial else getattr(bucket, name) for bucket in self.buckets]

    def lags(self, point: str) -> list[float | None]:
        return [getattr(bucket.lag, point, None) for bucket in self.buckets]

    @property
    def depth(self) -> int:
        return next((bucket.depth for bucket in reversed(self.buckets) if bucket.depth is not None), 0)

    @property
    def capacity(self) -> float | None:
        """Recent throughput per forecast span."""
        per_minute = self.forecast.capacity if self.forecast else None
        return None if per_minute is None else per_minute * self.planned_step.total_seconds() / 60


class AnomalyLine(NamedTuple):
    """The latest of several anomalies of one kind."""

    anomaly: Anomaly
    times: int = 1

    @property
    def acknowledged(self) -> bool:
        return self.anomaly.acknowledged_at is not None

    @property
    def order(self) -> tuple[bool, int, float]:
        """Open and severe ones first, then the latest."""
        rank = list(Severity).index(self.anomaly.severity)
        return self.acknowledged, -rank, -self.anomaly.window_from.timestamp()

    @property
    def facts(self) -> list[str]:
        anomaly = self.anomaly
        observed = None if anomaly.observed is None else f"{_number(anomaly.observed)} {anomaly.measured}".rstrip()
        pairs = (("observed", observed), ("expected", expected_band(anomaly.expected_low, anomaly.expected_high)))
        return [f"{name} {value}" for name, value in pairs if value]


def expected_band(low: float | None, high: float | None) -> str | None:
    if low is None:
        return None if high is None else f"at most {_number(high)}"
    return f"at least {_number(low)}" if high is None else f"{_number(low)} to {_number(high)}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    made_at: datetime
    since: datetime
    until: datetime
    queues: tuple[QueueReport, ...]
    findings: tuple[AnomalyLine, ...]
    runs: tuple[PastRun, ...]
    fresh_at: datetime | None
    notes: tuple[str, ...] = ()
    """Missing results, and how to produce them."""

    def total(self, name: str) -> int:
        return sum(queue.total(name) for queue in self.queues)

    @property
    def looked_for_anomalies(self) -> bool:
        """Else "no anomalies" would be a claim without a basis."""
        return any(run.job == "anomalies" for run in self.runs)


class Axis(NamedTuple):
    """The starts of equal time spans."""

    starts: Sequence[datetime]
    step: timedelta


def report_of(
    *,
    metrics: Sequence[MetricSpan] = (),
    totals: Sequence[MetricSpan] = (),
    consumers: Sequence[ConsumerHour] = (),
    forecasts: Sequence[Forecast] = (),
    planned: Sequence[ForecastSpan] = (),
    findings: Sequence[AnomalyLine] = (),
    runs: Sequence[PastRun] = (),
    past: Axis | None = None,
    future: Axis | None = None,
    since: datetime,
    until: datetime,
    made_at: datetime,
    notes: Sequence[str] = (),
) -> Report:
    """`metrics` and `planned` have at most one row per queue and span of their axis, `totals` one per queue."""
    past = past or past_axis(metrics, since, until)
    future = future or future_axis(planned, until)
    whole = {total.queue: total for total in totals}
    ahead = {forecast.queue: forecast for forecast in forecasts}
    spans, hours = grouped(metrics, attrgetter("queue")), grouped(consumers, attrgetter("queue"))
    coming = grouped(planned, attrgetter("queue"))

    def of_queue(name: str) -> QueueReport:
        total = whole.get(name)
        return QueueReport(
            queue=name,
            step=past.step,
            buckets=tuple(_buckets(spans.get(name, ()), past, until)),
            lag=total and total.lag,
            processing=total and total.processing,
            dead=total.dead if total else 0,
            consumers=tuple(_consumer_lines(hours.get(name, ()))),
            forecast=ahead.get(name),
            planned_step=future.step,
            planned=tuple(_planned(coming[name], future)) if name in coming else (),
        )

    return Report(
        made_at=made_at,
        since=since,
        until=until,
        queues=tuple(map(of_queue, sorted({row.queue for rows in (metrics, consumers, forecasts) for row in rows}))),
        findings=tuple(sorted(findings, key=attrgetter("order"))),
        runs=tuple(runs),
        fresh_at=max((row.fresh_at for rows in (metrics, consumers, forecasts) for row in rows), default=None),
        notes=tuple(notes),
    )


def past_axis(spans: Sequence[MetricSpan], since: datetime, until: datetime) -> Axis:
    return axis(max(since, min((span.minute for span in spans), default=since)), until)


def future_axis(spans: Sequence[ForecastSpan], until: datetime) -> Axis:
    first = min((span.minute for span in spans), default=until)
    return axis(first, max((span.last_minute for span in spans), default=until) + _STEPS[0])


def axis(since: datetime, until: datetime) -> Axis:
    """An axis with as many spans as a chart can show, aligned to round instants."""
    step = next((step for step in _STEPS if (until - since) / step < MOST_BUCKETS), _STEPS[-1])
    first, last = floored(since, step), floored(until - timedelta(microseconds=1), step)
    first = min(first, last - (FEWEST_BUCKETS - 1) * step)
    return Axis([first + n * step for n in range(int((last - first) / step) + 1)], step)


def grouped(rows: Iterable[R], key: Callable[[R], K]) -> dict[K, list[R]]:
    groups: dict[K, list[R]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def _buckets(metrics: Sequence[MetricSpan], past: Axis, until: datetime) -> Iterable[Bucket]:
    by_start = {floored(span.minute, past.step): span for span in metrics}
    depth: int | None = None
    for start in past.starts:
        span = by_start.get(start)
        counts: dict[str, int] = {name: getattr(span, name) for name in _COUNTS} if span else {}
        depth = span.depth if span else depth
        partial = start + past.step > until
        yield Bucket(start=start, lag=span.lag if span else None, depth=depth, partial=partial, **counts)


def _planned(planned: Sequence[ForecastSpan], future: Axis) -> Iterable[ForecastSpan]:
    by_start = {floored(span.minute, future.step): span for span in planned}
    empty = replace(planned[0], planned=0, retries=0, backlog=0.0)
    return (replace(by_start.get(start, empty), minute=start) for start in future.starts)


def _consumer_lines(hours: Sequence[ConsumerHour]) -> list[ConsumerLine]:
    leased_by_all = sum(hour.leased for hour in hours)
    lines: list[ConsumerLine] = []
    for name, own in grouped(hours, attrgetter("consumer")).items():
        counts = {what: sum(getattr(hour, what) for hour in own) for what in ("leased", "acked", "failed", "expired")}
        ended = counts["acked"] + counts["failed"] + counts["expired"]
        lines.append(
            ConsumerLine(
                consumer=name,
                **counts,
                success_rate=counts["acked"] / ended if ended else None,
                share=counts["leased"] / leased_by_all if leased_by_all else None,
                slowest_p95_s=max((hour.processing.p95 for hour in own if hour.processing), default=None),
            )
        )
    return sorted(lines, key=lambda line: (-line.leased, line.consumer))
