"""Running workers: their periodic reports."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

REPORT_EVERY = timedelta(seconds=15)
"""Interval of reports, one statement each, also by idle workers."""
LATE_AFTER = timedelta(seconds=60)
"""A worker without a report for this long has probably stopped."""
KEPT_FOR = timedelta(minutes=15)
"""A worker without a report for this long is no longer listed."""
RELEASES_KEPT_FOR = timedelta(days=30)
"""How long the releases of consumers are kept."""
RELEASE_NOTED_EVERY = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerState:
    id: str
    """Unique, even if several workers share a consumer name."""
    consumer: str
    host: str
    pid: int
    version: str
    """Tarry's version."""
    queues: tuple[str, ...]
    concurrency: int
    running: int = 0
    """Running handlers."""
    extensions: int = 0
    """Leases prolonged by its heartbeat since the start."""
    is_stopping: bool = False
    release: str | None = None
    """Version of the user's program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReport(WorkerState):
    at: datetime
    """The worker's clock, from which the store computes the skew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningWorker(WorkerState):
    """The last report of a worker, with times of the store's clock."""

    skew: timedelta
    """How far its clock is ahead of the store's, to within the duration of a request."""
    started_at: datetime
    seen_at: datetime
    drain_at: datetime | None = None
    """When a drain was requested: the worker finishes its messages and stops."""

    @classmethod
    def of(
        cls, report: WorkerReport, *, started_at: datetime, seen_at: datetime, drain_at: datetime | None
    ) -> RunningWorker:
        """For stores without SQL."""
        fields: dict[str, Any] = asdict(report)
        skew = fields.pop("at") - seen_at
        return cls(**fields, skew=skew, started_at=started_at, seen_at=seen_at, drain_at=drain_at)

    def is_late(self, now: datetime) -> bool:
        return self.seen_at < now - LATE_AFTER


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRelease:
    """The time a consumer ran a release, from the reports of workers: messages need not carry it."""

    consumer: str
    release: str
    first_at: datetime
    last_at: datetime
    """Time of the last report, up to `RELEASE_NOTED_EVERY` too early."""


def releases_of(known: Iterable[WorkerRelease], consumer: str, since: datetime, until: datetime) -> list[str]:
    """The releases that a consumer ran in this time; several if workers of one name ran different ones."""
    late = RELEASE_NOTED_EVERY + REPORT_EVERY
    own = [row for row in known if row.consumer == consumer and row.first_at <= until and row.last_at + late >= since]
    # A report may be a minute old: another release that has started since then replaces it.
    return sorted({row.release for row in own if not any(row.last_at < other.first_at <= since for other in own)})
