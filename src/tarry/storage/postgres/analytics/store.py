"""Results of the pipeline in PostgreSQL: written by its jobs, read by the broker, the command line and reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final, LiteralString, TypeVar, cast

from tarry.core.analytics.anomalies import Anomaly, ContinuableAnomaly, Published, Severity
from tarry.core.analytics.manifest import QueueNames
from tarry.core.analytics.metrics import CurrentQueue, ForecastSpan, MetricSpan, Outlook, Planned, Table
from tarry.core.analytics.port import AnalyticsQuery
from tarry.core.analytics.rounds import QueueLevel, Round
from tarry.core.errors import InvalidState
from tarry.core.journal.events import EventKind
from tarry.storage.postgres.analytics import operations
from tarry.storage.postgres.analytics.database import Role
from tarry.storage.postgres.statement import Row, each, made, value, value_or_none

R = TypeVar("R")
Rows = Sequence[tuple[Any, ...]]

CHUNK = 5_000
"""Rows per statement and transaction."""
_PUT: Final[Mapping[Table, LiteralString]] = {
    Table.METRICS: "analytics/put_metrics",
    Table.CONSUMERS: "analytics/put_consumers",
    Table.FORECASTS: "analytics/put_forecasts",
    Table.FORECAST_MINUTES: "analytics/put_forecast_minutes",
    Table.BANDS: "analytics/anomalies/put_bands",
}


class PipelineAnalytics(Role):
    """Results written by jobs, and aggregates read by reports. Single rows: `AnalyticsRole`."""

    def metric_spans(
        self, queue: str | None, since: datetime, until: datetime, step: timedelta | None
    ) -> list[MetricSpan]:
        """Aggregates of all minutes: in spans of length `step`, or as a whole (None)."""
        params = {"since": since, "until": until, "step": step}
        return self._rows(queue, "analytics/metric_spans", made(MetricSpan), params)

    def forecast_minutes(self, queue: str | None, *, limit: int = 10_080) -> list[Row]:
        """The first future minutes with load or backlog, within the limit."""
        return self._rows(queue, "analytics/forecast_minutes", lambda row: row, {"limit": operations.limited(limit)})

    def forecast_spans(self, queue: str | None, step: timedelta | None) -> list[ForecastSpan]:
        """Like `metric_spans`."""
        return self._rows(queue, "analytics/forecast_spans", made(ForecastSpan), {"step": step})

    def put(self, table: Table, rows: Iterable[str]) -> tuple[int, int]:
        """Upsert rows given as JSON objects with every column; returns how many there were, and how many were new or
        different."""
        count, changed, remaining = 0, 0, iter(rows)
        while chunk := list(islice(remaining, CHUNK)):
            count += len(chunk)
            changed += self._database.fetch(_PUT[table], value, rows=f"[{','.join(chunk)}]")
        return count, changed

    def keep_forecast(self, run_id: int) -> int:
        """Delete every forecast except that of this run."""
        return self._database.fetch("analytics/keep_forecast", value, run_id=run_id)

    def outlook(self, now: datetime, until: datetime) -> Outlook:
        """The load that is known from the live messages."""
        return self._database.fetch("analytics/outlook", _outlook, now=now, until=until)

    def queue_names(self) -> dict[int, QueueNames]:
        """By queue id, also of deleted queues."""
        rows = self._database.fetch("analytics/queue_names", each(made(QueueNames)))
        return {names.queue_id: names for names in rows}

    def queue_id(self, queue: str) -> int:
        """The queue with this name, or the last one that had it. Raises UnknownQueue."""
        return cast(int, self._database.query(lambda: operations.queue_id(queue)))

    def _rows(
        self, queue: str | None, verb: LiteralString, decode: Callable[[Row], R], params: Mapping[str, object]
    ) -> list[R]:
        return self._database.query(lambda: operations.rows_of(queue, verb, decode, params))


def _outlook(rows: list[Row]) -> Outlook:
    standings: dict[int, CurrentQueue] = {}
    planned: list[Planned] = []
    for row in rows:
        if row.queue_id not in standings:  # messages already due come first, and have no minute
            standings[row.queue_id] = made(CurrentQueue)(row)
        if row.minute is not None:
            planned.append(Planned(row.queue_id, row.minute, row.messages, row.retries))
    return Outlook(tuple(standings.values()), tuple(planned))


class PostgresAnomalies(Role):
    """Anomalies: published by the pipeline; read and acknowledged by users. Mutes: `AnalyticsRole`."""

    def publish(
        self, rows: Iterable[str], *, detectors: Sequence[str], since: datetime, until: datetime, run_id: int
    ) -> Published:
        """Store the findings of these detectors between two instants, as JSON objects, in one transaction.

        Existing anomalies keep their id and acknowledgement. Muted ones are not raised.
        """
        (published,) = self._database.fetch(
            "analytics/anomalies/publish",
            each(made(Published)),
            rows=f"[{','.join(rows)}]",
            detectors=list(detectors),
            since=since,
            until=until,
            run_id=run_id,
        )
        return published

    def continuable(
        self, *, detectors: Sequence[str], since: datetime, frames_from: datetime
    ) -> Sequence[ContinuableAnomaly]:
        """Published anomalies of these detectors that began before `since` and lasted until `frames_from` or longer."""
        params = {"detectors": [*detectors], "since": since, "frames_from": frames_from}
        return self._database.fetch("analytics/anomalies/continuable", each(made(ContinuableAnomaly)), **params)

    def raised(self, *, detectors: Sequence[str], since: datetime) -> Rows:
        """Anomalies that these detectors have raised, by queue and hour since 1970: (detector, queue id, hour, number)."""
        return self._database.fetch("analytics/anomalies/raised", each(tuple), detectors=[*detectors], since=since)

    def queues(self) -> Rows:
        """The properties of all queues, including deleted ones, that detectors need and events do not contain."""
        return self._database.fetch("analytics/anomalies/queues", each(tuple))

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
        query = AnalyticsQuery(queue=queue, since=since, until=until, limit=limit)
        return self._database.query(
            lambda: operations.anomalies(query, detector=detector, severity=severity, acknowledged=acknowledged)
        ).rows

    def acknowledge(
        self, ids: Sequence[int], *, by: str | None = None, note: str | None = None, is_false_positive: bool = False
    ) -> int:
        """Acknowledge anomalies, or mark them as false positives; returns the number of changed ones."""
        return self._database.query(
            lambda: operations.acknowledge_all(ids, by, note, is_false_positive=is_false_positive)
        )


class PostgresRounds(Role):
    """The last completed and the planned round of each lake, and the queue levels after the completed one."""

    def head(self, lake: str) -> Round | None:
        """The last completed round."""
        return self._round(lake, is_done=True)

    def planned(self, lake: str) -> Round | None:
        """The round that a run has planned and not completed."""
        return self._round(lake, is_done=False)

    def plan(self, planned: Round) -> None:
        self._database.write("analytics/rounds/plan", **asdict(planned))

    def finish(self, planned: Round, levels: Sequence[QueueLevel]) -> None:
        """Complete a round and set the levels of these queues, in one transaction. Raises if another run has done it."""
        columns = {
            "queue_ids": [level.queue_id for level in levels],
            "depths": [level.depth for level in levels],
            "deads": [level.dead for level in levels],
        }
        number = self._database.write(
            "analytics/rounds/finish", value_or_none, lake=planned.lake, number=planned.number, **columns
        )
        if number is None:
            raise InvalidState(
                f"another run has already completed round {planned.number} of the lake {planned.lake}; nothing is lost, "
                "and the next run continues from there",
                hint="run one pipeline at a time on a lake",
            )

    def levels(self, lake: str) -> list[QueueLevel]:
        return self._database.fetch("analytics/rounds/levels", each(made(QueueLevel)), lake=lake)

    def unknown_kinds(self) -> list[str]:
        """Kinds of events that only a newer version of Tarry writes."""
        known = [kind.value for kind in EventKind]
        return [row.kind for row in self._database.fetch("analytics/rounds/unknown_kinds", list[Row], known=known)]

    def forget(self, lake: str) -> None:
        """Make the next round start with the first event and replace the derived tables."""
        self._database.write("analytics/rounds/forget", lake=lake)

    def _round(self, lake: str, *, is_done: bool) -> Round | None:
        rows = self._database.fetch("analytics/rounds/rounds", list[Row], lake=lake)
        return next((made(Round)(row) for row in rows if row.is_done is is_done), None)
