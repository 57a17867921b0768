"""Running workers: what each reports of itself now and then."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

REPORT_EVERY = timedelta(seconds=15)
"""One statement of each worker, also of an idle one."""
LATE_AFTER = timedelta(seconds=60)
"""A worker that has not reported for this long is probably gone."""
KEPT_FOR = timedelta(minutes=15)
"""And is dropped after this."""
RELEASES_KEPT_FOR = timedelta(days=30)
"""How long it is known which release a consumer ran."""
RELEASE_NOTED_EVERY = timedelta(minutes=1)


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
    release: str | None = None
    """Of the user's program."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRelease:
    """When a consumer ran a release. Workers report it, so a message need not."""

    consumer: str
    release: str
    first_at: datetime
    last_at: datetime
    """Of the last report but for `RELEASE_NOTED_EVERY`."""


def releases_of(known: Iterable[WorkerRelease], consumer: str, since: datetime, until: datetime) -> list[str]:
    """Which releases a consumer ran in this time. Several, if workers of one name ran different ones."""
    late = RELEASE_NOTED_EVERY + REPORT_EVERY
    own = [row for row in known if row.consumer == consumer and row.first_at <= until and row.last_at + late >= since]
    # A report may be a minute old: another release that has begun since then replaces it.
    return sorted({row.release for row in own if not any(row.last_at < other.first_at <= since for other in own)})
