"""What is out of the ordinary: anomalies as people read them, and the port behind which they are kept."""

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
    """Something that a detector found, once, however often it looks at the same events."""

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
    """A query that shows it, to be run on the database."""
    fingerprint: str
    raised_at: datetime
    acknowledged_at: datetime | None
    acknowledged_by: str | None
    note: str | None
    run_id: int
    fresh_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Mute:
    """Nothing of this detector (None: of any) is raised for this queue (None: for any) until then (None: until unmuted)."""

    id: int
    detector: str | None
    queue: str | None
    until: datetime | None
    reason: str
    muted_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedQueue:
    """What detectors must know of a queue that its events do not say."""

    queue_id: int
    queue: str
    max_attempts: int | None
    created_at: datetime
    deleted_at: datetime | None
    journaled: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """What is usual for a metric of a queue in one hour of the week (0 is Monday, from midnight to one, UTC)."""

    queue: str
    metric: str
    hour_of_week: int
    low: float
    middle: float
    high: float
    minutes: int
    """How many minutes it is drawn from."""
    run_id: int
    fresh_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A published anomaly, as far as a run must know it to go on with it."""

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
    """What became of the findings of a run. Those that are unchanged are in none of the counts."""

    raised: int
    changed: int
    muted: int
    withdrawn: int
    """Raised before, and not found any more now that the same time was judged again. The acknowledged ones stay, and those
    that began before it."""


class Alerts(Protocol):
    def publish(
        self, rows: Iterable[str], *, detectors: Sequence[str], since: datetime, until: datetime, run_id: int
    ) -> Published:
        """Keep what these detectors found between two instants, given as JSON objects, in one transaction.

        What is already there keeps its id and its acknowledgement. What is muted is not raised.
        """
        ...

    def told(self, *, detectors: Sequence[str], since: datetime, reach: datetime) -> Sequence[Told]:
        """What these detectors told of that began before `since` and was still going on at `reach`, or after it."""
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
        """The latest first."""
        ...

    def acknowledge(self, ids: Sequence[int], *, by: str | None = None, note: str | None = None) -> int:
        """Seen by somebody. Says how many were not yet."""
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
        """The next run raises what was muted, if it still looks at that time. False if there is no such mute."""
        ...

    def mutes(self) -> list[Mute]:
        """Those that are in force, the latest first."""
        ...

    def queues(self) -> list[JudgedQueue]:
        """All there ever were."""
        ...

    def put_bands(self, rows: Iterable[str]) -> int:
        """Write bands, given as JSON objects, and say how many were new or different."""
        ...

    def bands(self, queue: str, metric: str) -> list[Band]: ...
