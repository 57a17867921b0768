"""Anomalies: the findings of detectors, and mutes."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from tarry.core.analytics.metrics import PipelineRow


class Severity(StrEnum):
    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


OBSERVED = {
    "flash_message": "ms until it was leased",
    "large_payload": "bytes",
    "long_processing": "s from lease to ack or nack",
    "near_dlq": "attempts left",
    "dlq_movement": "attempts",
    "zombie_message": "s since the lease expired",
    "burst_dequeue": "messages leased by one consumer",
    "bulk_enqueue": "offers in one transaction",
    "bulk_delete": "messages removed in one transaction",
    "bulk_move": "messages redriven in one transaction",
    "queue_cleared": "messages",
    "unusual_offers": "messages offered",
    "unusual_acks": "messages acked",
    "unusual_failures": "failed deliveries",
    "slow_processing": "s of processing (p95)",
    "late_delivery": "s of delivery lag (p95)",
}
"""What the observed value of a detector counts or measures."""
_SINGULAR = {"attempts": "attempt", "messages": "message", "offers": "offer"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly(PipelineRow):
    """A finding of a detector. The same events give one anomaly, however often they are judged."""

    id: int
    detector: str
    detector_version: int
    severity: Severity
    key: str | None
    consumer: str | None
    window_from: datetime
    window_to: datetime
    sentence: str
    observed: float | None
    expected_low: float | None
    expected_high: float | None
    score: float | None
    evidence: str
    """A query on the database that shows the events."""
    fingerprint: str
    raised_at: datetime
    acknowledged_at: datetime | None
    acknowledged_by: str | None
    note: str | None
    is_false_positive: bool
    """Similar ones of the next 90 days are not raised."""

    @property
    def measured(self) -> str:
        """What `observed` is a number of. Empty for detectors that are not ours."""
        counted, space, rest = OBSERVED.get(self.detector, "").partition(" ")
        return (_SINGULAR.get(counted, counted) if self.observed == 1 else counted) + space + rest


@dataclass(frozen=True, slots=True, kw_only=True)
class Mute:
    """Suppresses this detector (None: all) for this queue (None: all) until the given time (None: until unmuted)."""

    id: int
    detector: str | None
    queue: str | None
    until: datetime | None
    reason: str
    muted_at: datetime


@dataclass(frozen=True, slots=True)
class Band:
    """What is usual for a metric of a queue in one hour of the week (0: Monday, 00:00 UTC), in one minute of it."""

    hour_of_week: int
    low: float
    middle: float
    high: float


class ContinuableAnomaly(NamedTuple):
    """A published anomaly that a later run continues. A tuple, for a frame of many."""

    detector: str
    queue_id: int | None
    queue: str | None
    key: str | None
    consumer: str | None
    window_from: datetime
    window_to: datetime
    observed: float | None
    expected_low: float | None
    expected_high: float | None


@dataclass(frozen=True, slots=True)
class Published:
    """Counts of a publication. Unchanged anomalies are in none of the counts."""

    raised: int
    changed: int
    muted: int
    withdrawn: int
    """Not found again in the same time range. Acknowledged and earlier anomalies are kept."""
