"""Anomalies in a report: grouped by detector and queue, represented by the latest one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from tarry.core.anomalies import Anomaly
from tarry.edges.spark.report.values import Finding

if TYPE_CHECKING:
    from tarry.app import App


def findings_of(app: App, *, queue: str | None, since: datetime, until: datetime) -> list[Finding]:
    return grouped(app.pipeline.alerts.list(queue=queue, since=since, until=until, limit=None))


def grouped(anomalies: Sequence[Anomaly]) -> list[Finding]:
    """Group anomalies of one kind, since there may be hundreds. Acknowledged ones form their own groups."""
    groups: dict[tuple[str, str, str, bool], list[Anomaly]] = {}
    for one in anomalies:
        kind = (one.severity.value, one.detector, one.queue, one.acknowledged_at is not None)
        groups.setdefault(kind, []).append(one)
    return [finding(max(group, key=lambda one: one.window_from), len(group)) for group in groups.values()]


def finding(one: Anomaly, times: int = 1) -> Finding:
    return Finding(
        id=str(one.id),
        at=one.window_from,
        severity=one.severity.value,
        detector=one.detector,
        queue=one.queue,
        sentence=one.sentence,
        observed=None if one.observed is None else number(one.observed),
        expected=band(one.expected_low, one.expected_high),
        evidence=one.evidence,
        times=times,
        acknowledged=one.acknowledged_at is not None,
    )


def band(low: float | None, high: float | None) -> str | None:
    if low is not None and high is not None:
        return f"{number(low)} to {number(high)}"
    if high is not None:
        return f"at most {number(high)}"
    return None if low is None else f"at least {number(low)}"


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
