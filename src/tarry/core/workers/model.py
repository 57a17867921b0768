"""Running workers: what each reports of itself now and then."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

REPORT_EVERY = timedelta(seconds=15)
"""One statement of each worker, also of an idle one."""
LATE_AFTER = timedelta(seconds=60)
"""A worker that has not reported for this long is probably gone."""
KEPT_FOR = timedelta(minutes=15)
"""And is dropped after this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerState:
    id: str
    """Its own, also if several share the name of a consumer."""
    consumer: str
    host: str
    pid: int
    version: str
    """Of Tarry."""
    queues: tuple[str, ...]
    concurrency: int
    running: int = 0
    """Handlers at this moment."""
    extensions: int = 0
    """Leases that its heartbeat has prolonged, since it started."""
    is_stopping: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReport(WorkerState):
    """What a worker reports of itself."""

    at: datetime
    """Its clock, of which the store takes the skew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningWorker(WorkerState):
    """The last report of a worker, with times of the store's clock."""

    skew: timedelta
    """How far its clock is ahead of the store's, give or take the time of a request."""
    started_at: datetime
    seen_at: datetime
    drain_at: datetime | None = None
    """When the drain was requested: to finish what it has, and end."""

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
