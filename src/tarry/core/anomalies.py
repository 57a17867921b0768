"""Anomalies as users read them, and the port that stores them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol


class Severity(StrEnum):
    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    """A finding of a detector. The same events give one anomaly, however often they are judged."""

    id: int
    detector: str
    detector_version: int
    severity: Severity
    queue: str
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
    run_id: int
    fresh_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Mute:
    """Suppresses this detector (None: all) for this queue (None: all) until the given time (None: until unmuted)."""

    id: int
    detector: str | None
    queue: str | None
    until: datetime | None
    reason: str
    muted_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedQueue:
    """Properties of a queue that detectors need and events do not contain."""

    queue_id: int
    queue: str
    max_attempts: int | None
    created_at: datetime
    deleted_at: datetime | None
    journaled: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """The usual range of a metric of a queue in one hour of the week (0 is Monday 00:00–01:00 UTC)."""

    queue: str
    metric: str
    hour_of_week: int
    low: float
    middle: float
    high: float
    minutes: int
    """Number of minutes that it is based on."""
    run_id: int
    fresh_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The part of a published anomaly that a run needs to continue it."""

    detector: str
    queue_id: int
    queue: str
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
    """Raised before, and no longer found when the same time range was judged again. Acknowledged anomalies and those
    that began before the range are kept.
    """


class Alerts(Protocol):
    def publish(
        self, rows: Iterable[str], *, detectors: Sequence[str], since: datetime, until: datetime, run_id: int
    ) -> Published:
        """Store what these detectors found between two instants, as JSON objects, in one transaction.

        Existing anomalies keep their id and acknowledgement. Muted ones are not raised.
        """
        ...

    def told(self, *, detectors: Sequence[str], since: datetime, reach: datetime) -> Sequence[Told]:
        """Published anomalies of these detectors that began before `since` and lasted until `reach` or longer."""
        ...

    def list(
        self,
        *,
        queue: str | None = None,
        detector: str | None = None,
        severity: Severity | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        acknowledged: bool | None = None,
        limit: int | None = 100,
    ) -> list[Anomaly]:
        """Latest first."""
        ...

    def acknowledge(self, ids: Sequence[int], *, by: str | None = None, note: str | None = None) -> int:
        """Acknowledge anomalies; returns how many were not acknowledged before."""
        ...

    def mute(
        self,
        *,
        detector: str | None = None,
        queue: str | None = None,
        until: datetime | None = None,
        reason: str,
    ) -> Mute: ...
    def unmute(self, id: int) -> bool:
        """The next run raises what was muted, if it still judges that time range. False if there is no such mute."""
        ...

    def mutes(self) -> list[Mute]:
        """The mutes in force, latest first."""
        ...

    def queues(self) -> list[JudgedQueue]:
        """All queues, including deleted ones."""
        ...

    def put_bands(self, rows: Iterable[str]) -> int:
        """Upsert bands given as JSON objects; returns how many were new or different."""
        ...

    def bands(self, queue: str, metric: str) -> list[Band]: ...
