"""Results of the pipeline in PostgreSQL: written by its jobs, read by the broker, the command line and reports."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from itertools import islice
from typing import Final, LiteralString, TypeVar, cast

from tarry.core.analytics.manifest import QueueNames
from tarry.core.analytics.metrics import CurrentQueue, ForecastSpan, MetricSpan, Outlook, Planned, Table
from tarry.storage.postgres.analytics import operations
from tarry.storage.postgres.analytics.database import Role
from tarry.storage.postgres.statement import Row, each, made, value

R = TypeVar("R")

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
    """What jobs write, and the aggregates that reports read. Single rows: `AnalyticsRole`."""

    def metric_spans(
        self, queue: str | None, since: datetime, until: datetime, step: timedelta | None
    ) -> list[MetricSpan]:
        """Aggregates of all minutes: in spans of length `step`, or as a whole (None)."""

        def decode(row: Row) -> MetricSpan:
            return MetricSpan(**operations.with_quantiles(row, "lag", "processing"))

        return self._rows(queue, "analytics/metric_spans", decode, {"since": since, "until": until, "step": step})

    def forecast_minutes(self, queue: str | None, *, limit: int = 10_080) -> list[Row]:
        """The first future minutes with load or backlog, within the limit."""
        return self._rows(queue, "analytics/forecast_minutes", _same, {"limit": operations.limited(limit)})

    def forecast_spans(self, queue: str | None, step: timedelta | None) -> list[ForecastSpan]:
        """Like `metric_spans`."""
        return self._rows(queue, "analytics/forecast_spans", made(ForecastSpan), {"step": step})

    def put(self, table: Table, rows: Iterable[str]) -> int:
        """Upsert rows given as JSON objects with every column; returns how many were new or different."""
        changed, remaining = 0, iter(rows)
        while chunk := list(islice(remaining, CHUNK)):
            changed += self._database.fetch(_PUT[table], value, rows=f"[{','.join(chunk)}]")
        return changed

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


def _same(row: Row) -> Row:
    return row


def _outlook(rows: list[Row]) -> Outlook:
    standings: dict[int, CurrentQueue] = {}
    planned: list[Planned] = []
    for row in rows:
        # Messages already due come first and have no minute.
        is_due = row.minute is None
        messages, leased = row.messages or 0, row.leased or 0
        standing = CurrentQueue(
            queue_id=row.queue_id,
            queue=row.queue,
            ready=messages - leased if is_due else 0,
            leased=leased if is_due else 0,
            target_lag_s=row.target_lag_s,
            paused=row.paused,
        )
        standings.setdefault(row.queue_id, standing)
        if not is_due:
            planned.append(Planned(row.queue_id, row.minute, messages, row.retries))
    return Outlook(tuple(standings.values()), tuple(planned))
