"""Made-up results of the pipeline, and a report of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from tarry.core.analytics.anomalies import Anomaly, Severity
from tarry.core.analytics.manifest import PastRun
from tarry.core.analytics.metrics import ConsumerHour, Forecast, ForecastSpan, MetricSpan, Quantiles
from tarry.edges.spark.report.values import AnomalyLine, Report, report_of

NOON = datetime(2030, 1, 31, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
COUNTS = ("offered", "leased", "acked", "nacked", "expired", "buried", "depth", "dead")
NASTY = "<script>alert('&')</script>\x1b[31m"


def metric(minute: datetime, queue: str = "orders", **counts: int) -> MetricSpan:
    return MetricSpan(
        queue=queue,
        minute=minute,
        lag=Quantiles(0.01, 0.02, 0.03),
        processing=None,
        fresh_at=NOON,
        **{**dict.fromkeys(COUNTS, 0), **counts},
    )


def hour(consumer: str, leased: int, acked: int, failed: int = 0, *, at: datetime = NOON) -> ConsumerHour:
    return ConsumerHour(
        queue="orders",
        consumer=consumer,
        hour=at,
        leased=leased,
        acked=acked,
        failed=failed,
        expired=0,
        released=0,
        success_rate=None,
        share=None,
        processing=Quantiles(0.1, 0.2, 0.3),
        exact=True,
        run_id=1,
        fresh_at=NOON,
    )


def anomaly(id: int = 1, **changes: object) -> Anomaly:
    made = Anomaly(
        id=id,
        detector="dlq_movement",
        detector_version=1,
        severity=Severity.WARNING,
        queue="orders",
        key="order-17",
        consumer=None,
        window_from=NOON,
        window_to=NOON,
        sentence=f"order-{id} was buried.",
        observed=3.0,
        expected_low=None,
        expected_high=2.0,
        score=None,
        evidence="select 1",
        fingerprint=str(id),
        is_false_positive=False,
        raised_at=NOON,
        acknowledged_at=None,
        acknowledged_by=None,
        note=None,
        run_id=1,
        fresh_at=NOON,
    )
    return replace(made, **changes)


def full(queue: str = "orders") -> Report:
    ahead = NOON + timedelta(hours=1)
    return report_of(
        metrics=[metric(NOON - n * MINUTE, queue, offered=5, leased=4, acked=3, nacked=1, depth=n) for n in (3, 2, 1)],
        totals=[metric(NOON - 3 * MINUTE, queue)],
        consumers=[replace(hour("worker-1", 10, 8, 2), queue=queue)],
        forecasts=[
            Forecast(
                queue=queue, planned=7, retries=1, capacity=3.0, saturated_at=None, recovered_at=None, peak_backlog=0.0,
                peak_at=None, sentence="7 messages are planned.", run_id=1, fresh_at=NOON,
            )
        ],
        planned=[ForecastSpan(queue=queue, minute=ahead, last_minute=ahead, planned=7, retries=1, backlog=2.0)],
        findings=[AnomalyLine(anomaly())],
        runs=[PastRun(id=1, job="metrics", started_at=NOON, ended_at=NOON + MINUTE, state="done", summary={}, error=None)],
        since=NOON - timedelta(hours=24),
        until=NOON,
        made_at=NOON,
    )  # fmt: skip
