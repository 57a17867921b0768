"""The port through which the broker reads pipeline results: pages of rows, filtered for keys restricted to some queues.

A page contains the last completed run of its job, because an empty page may mean that nothing happened, or that the job
has not run."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Generic, Protocol, TypeVar

from tarry.core.analytics.anomalies import Anomaly, Band, Mute, Severity
from tarry.core.analytics.manifest import ArchivedDay, ArchivedFile, PastRun
from tarry.core.analytics.metrics import ConsumerHour, Forecast, MetricMinute
from tarry.core.journal.events import Event, EventKind
from tarry.core.operation import Operation
from tarry.core.security.api_keys import fits

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyticsQuery:
    """Rows of one queue (None: any), of the queues visible to the reader (`patterns` of a key; None: all), between two
    instants, after the `next` of the previous page."""

    queue: str | None = None
    patterns: Sequence[str] | None = None
    since: datetime | None = None
    until: datetime | None = None
    after: str | None = None
    limit: int | None = 100
    """None: all rows."""

    def sees(self, queue: str) -> bool:
        """Whether the queue is visible to the reader."""
        return self.patterns is None or any(fits(pattern, queue) for pattern in self.patterns)

    def covers(self, queue: str, at: datetime) -> bool:
        """The filter of the SQL, for stores without SQL."""
        return (
            self.queue in (None, queue)
            and self.sees(queue)
            and (self.since is None or at >= self.since)
            and (self.until is None or at < self.until)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyticsPage(Generic[R]):
    """A page of rows, newest first."""

    rows: list[R]
    next: str | None = None
    run: PastRun | None = None
    """The last successful run of the job. None: it has never run, so there are no rows."""


class AnalyticsRole(Protocol):
    def events(
        self, query: AnalyticsQuery, *, kinds: Iterable[EventKind] | None = None, consumer: str | None = None
    ) -> Operation[AnalyticsPage[Event]]:
        """The journal, newest first and without payloads. A page may be short or empty and still have a `next`: each
        query scans a bounded number of events, matching or not."""
        ...

    def minutes(self, query: AnalyticsQuery) -> Operation[AnalyticsPage[MetricMinute]]: ...
    def hours(
        self, query: AnalyticsQuery, *, consumer: str | None = None
    ) -> Operation[AnalyticsPage[ConsumerHour]]: ...
    def forecasts(self, query: AnalyticsQuery) -> Operation[AnalyticsPage[Forecast]]:
        """One row per queue, earliest saturation first. Limit and instants are ignored."""
        ...

    def anomalies(
        self,
        query: AnalyticsQuery,
        *,
        detector: str | None = None,
        severity: Severity | None = None,
        acknowledged: bool | None = None,
    ) -> Operation[AnalyticsPage[Anomaly]]: ...
    def anomaly(self, id: int) -> Operation[Anomaly | None]: ...
    def acknowledge(
        self, id: int, *, by: str | None, note: str | None, is_false_positive: bool = False
    ) -> Operation[Anomaly | None]:
        """Acknowledge an anomaly; the first acknowledgement is kept. A false positive raises the threshold of its detector
        for its queue and consumer: for 90 days, only anomalies with a higher score are raised."""
        ...

    def mute(
        self, *, detector: str | None, queue: str | None, until: datetime | None, reason: str
    ) -> Operation[Mute]: ...
    def mutes(self) -> Operation[list[Mute]]: ...
    def unmute(self, id: int) -> Operation[bool]: ...
    def bands(self, queue: str, metric: str) -> Operation[list[Band]]:
        """The usual range by hour of the week. Metrics: offered, acked, failed, processing, lag."""
        ...

    def runs(self, *, job: str | None = None, before: int | None = None, limit: int = 100) -> Operation[list[PastRun]]:
        """Runs of jobs, the newest first; `before`: only those before the run with this id."""
        ...

    def last_runs(self, jobs: Sequence[str]) -> Operation[list[PastRun]]:
        """The last run of each of these jobs on each lake: completed, failed, running or lost."""
        ...

    def lake_days(self, *, limit: int = 100) -> Operation[Mapping[str, list[ArchivedDay]]]:
        """By lake: its days, the newest first."""
        ...

    def lake_files(
        self, *, since: date | None = None, until: date | None = None, queue: str | None = None, limit: int = 1_000
    ) -> Operation[list[ArchivedFile]]:
        """The readable files of these days, both included, of the newest batches; the newest day first."""
        ...
