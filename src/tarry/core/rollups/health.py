"""Health of a queue, judged by its current state and recent events."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from tarry.core.analytics.anomalies import Severity
from tarry.core.durations import roughly
from tarry.core.rollups.model import ConsumerSlice, QueueSlice, Standing, quantiles
from tarry.core.settings import QueueInfo
from tarry.core.workers.model import LATE_AFTER

JUDGED_FOR = timedelta(minutes=15)
"""Events within this time count as recent."""
_RATE_FOR = timedelta(minutes=5)
_FAILING = 0.2
_NEARLY_FULL = 0.9
_FEW = 10
"""Minimum number of attempts for a meaningful failure share."""


class Concern(StrEnum):
    """The subject of a finding, for links."""

    LATE = "late"
    UNCONSUMED = "unconsumed"
    PAUSED = "paused"
    FAILING = "failing"
    DEAD = "dead"
    FULL = "full"


class Finding(NamedTuple):
    queue: str
    concern: Concern
    severity: Severity
    sentence: str
    """After the name of the queue."""


class Lag(NamedTuple):
    """Percentiles of the lag of first deliveries, in seconds; None: nothing was delivered."""

    p50: float | None
    p95: float | None
    p99: float | None

    @classmethod
    def of(cls, buckets: Mapping[int, int]) -> Lag:
        return cls(*quantiles(buckets, (0.5, 0.95, 0.99)))


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueHealth:
    info: QueueInfo
    standing: Standing
    lag: Lag
    offered_per_s: float
    acked_per_s: float
    failed_share: float | None
    """Share of recent attempts that failed; None if there were none."""
    buried: int
    consumers: int
    """Reporting workers and consumers active in the last minute; or waiting processes, if there are more."""
    drained_for: timedelta | None
    """Time until all ready messages are processed at the current rate. None: none is ready, or their number grows."""
    is_growing: bool
    findings: tuple[Finding, ...]


def judge(
    info: QueueInfo,
    standing: Standing,
    slices: Sequence[QueueSlice],
    lags: Mapping[int, int],
    consumers: Sequence[ConsumerSlice],
    now: datetime,
    workers: Collection[str] = (),
) -> QueueHealth:
    """`slices`, `lags`, `consumers`: this queue's, of the last `JUDGED_FOR`. `workers`: consumers of reporting workers."""
    recent = [row for row in slices if row.start_at >= now - _RATE_FOR]
    rate_s = _RATE_FOR.total_seconds()
    offered, acked = (sum(getattr(row, name) for row in recent) / rate_s for name in ("offered", "acked"))
    done = sum(row.acked for row in slices)
    failed = sum(row.nacked + row.expired for row in slices)
    buried = sum(row.buried for row in slices)
    names = {*workers, *(row.consumer for row in consumers if row.last_at >= now - LATE_AFTER)}
    share = failed / (done + failed) if done + failed else None
    lag, ready = Lag.of(lags), standing.counts.ready.n
    spare = acked - offered
    is_growing = ready > 0 and spare <= 0
    active = max(len(names), standing.waiting, min(standing.counts.leased.n, 1))
    findings = _findings(info, standing, lag, share, done + failed, buried, active or len(consumers))
    return QueueHealth(
        info=info,
        standing=standing,
        lag=lag,
        offered_per_s=offered,
        acked_per_s=acked,
        failed_share=share,
        buried=buried,
        consumers=active,
        drained_for=timedelta(seconds=ready / spare) if ready and not is_growing else None,
        is_growing=is_growing,
        findings=tuple(findings),
    )


def _findings(
    info: QueueInfo, standing: Standing, lag: Lag, share: float | None, attempts: int, buried: int, active: int
) -> list[Finding]:
    findings: list[Finding] = []

    def add(concern: Concern, severity: Severity, sentence: str) -> None:
        findings.append(Finding(info.name, concern, severity, sentence))

    counts, target = standing.counts, info.settings.target_lag_for
    if info.paused:
        because = f" ({info.paused_reason})" if info.paused_reason else ""
        add(Concern.PAUSED, Severity.WARNING, f"is paused{because}; {counts.ready} ready")
    elif counts.ready.n and not active:
        add(Concern.UNCONSUMED, Severity.CRITICAL, f"has no consumers; {counts.ready} ready")
    elif counts.lag_for > target:
        waits = f"waits for {roughly(counts.lag_for)}, the target is {roughly(target)}"
        add(Concern.LATE, Severity.CRITICAL, f"is late: the oldest message {waits}")
    elif lag.p95 is not None and lag.p95 > target.total_seconds():
        p95 = roughly(timedelta(seconds=lag.p95))
        add(Concern.LATE, Severity.WARNING, f"was late: p95 of the lag is {p95}, the target is {roughly(target)}")
    if info.settings.max_depth is not None and standing.live_total is not None:
        full = f"{standing.live_total:,} of at most {info.settings.max_depth:,} messages"
        if standing.live_total >= info.settings.max_depth:
            add(Concern.FULL, Severity.CRITICAL, f"is full: it has {full}, so offers of new keys are refused")
        elif standing.live_total >= info.settings.max_depth * _NEARLY_FULL:
            add(Concern.FULL, Severity.WARNING, f"is nearly full: it has {full}")
    if share is not None and share >= _FAILING and attempts >= _FEW:
        add(Concern.FAILING, Severity.WARNING, f"fails in {share:.0%} of {attempts:,} attempts")
    left = buried if standing.dead.capped else min(buried, standing.dead.n)  # the others were redriven or discarded
    if left:
        letters = "dead letter" if left == 1 else "dead letters"
        add(Concern.DEAD, Severity.WARNING, f"has {left:,} new {letters} in the last {roughly(JUDGED_FOR)}")
    return findings
