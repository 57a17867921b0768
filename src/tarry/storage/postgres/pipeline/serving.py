"""Results of the pipeline: written by its jobs, read by the dashboard, the API and the command line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from itertools import islice
from typing import Any, Final, LiteralString, TypeVar

from tarry.core.serving import (
    ConsumerHour,
    FactOutcome,
    Forecast,
    ForecastMinute,
    ForecastSpan,
    Level,
    MessageFact,
    MetricMinute,
    MetricSpan,
    Outlook,
    Planned,
    Standing,
    Table,
)
from tarry.storage.postgres import insight_statements as insights
from tarry.storage.postgres.pipeline.reach import Reach
from tarry.storage.postgres.statement import Row, Statement, sql

R = TypeVar("R")

CHUNK = 5_000
"""Rows per statement and transaction."""
_PUT: Final[Mapping[Table, LiteralString]] = {
    Table.METRICS: "pipeline_put_metrics",
    Table.CONSUMERS: "pipeline_put_consumers",
    Table.FACTS: "pipeline_put_facts",
    Table.FORECASTS: "pipeline_put_forecasts",
    Table.FORECAST_MINUTES: "pipeline_put_forecast_minutes",
}


class PostgresServing:
    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    def metrics(
        self, queue: str | None, since: datetime, until: datetime, *, limit: int = 10_000
    ) -> list[MetricMinute]:
        return self._newest("pipeline_metrics", insights.minute, queue, limit, since=since, until=until)

    def metric_spans(
        self, queue: str | None, since: datetime, until: datetime, step: timedelta | None
    ) -> list[MetricSpan]:
        params = {"since": since, "until": until, "step": step}
        return self._reach.ask(lambda: insights.about(queue, "pipeline_metric_spans", _metric_span, params))

    def consumers(
        self, queue: str | None, since: datetime, until: datetime, *, limit: int | None = 1_000
    ) -> list[ConsumerHour]:
        return self._newest("pipeline_consumers", insights.hour, queue, limit, since=since, until=until)

    def facts(
        self,
        queue: str | None,
        since: datetime,
        until: datetime,
        *,
        outcome: FactOutcome | None = None,
        limit: int = 1_000,
    ) -> list[MessageFact]:
        said = None if outcome is None else outcome.value
        return self._newest("pipeline_facts", _fact, queue, limit, since=since, until=until, outcome=said)

    def forecasts(self, queue: str | None = None) -> list[Forecast]:
        return self._reach.ask(lambda: insights.about(queue, "pipeline_forecasts", insights.forecast, {}))

    def forecast_minutes(self, queue: str | None, *, limit: int = 10_080) -> list[ForecastMinute]:
        params = {"limit": insights.limited(limit)}
        return self._reach.ask(lambda: insights.about(queue, "pipeline_forecast_minutes", _forecast_minute, params))

    def forecast_spans(self, queue: str | None, step: timedelta | None) -> list[ForecastSpan]:
        return self._reach.ask(lambda: insights.about(queue, "pipeline_forecast_spans", _forecast_span, {"step": step}))

    def put(self, table: Table, rows: Iterable[str]) -> int:
        changed, left = 0, iter(rows)
        while chunk := list(islice(left, CHUNK)):
            changed += self._reach.ask(_counting(_PUT[table], {"rows": f"[{','.join(chunk)}]"}).run)
        return changed

    def keep_forecast(self, run_id: int) -> int:
        return self._reach.ask(_counting("pipeline_keep_forecast", {"run_id": run_id}).run)

    def forget_facts(self, before: datetime) -> int:
        forgotten = 0
        while gone := self._reach.ask(_counting("pipeline_forget_facts", {"before": before, "limit": CHUNK}).run):
            forgotten += gone
        return forgotten

    def levels_before(self, lake: str, day: date) -> list[Level]:
        params = {"lake": lake, "day": day}
        return self._reach.ask(
            Statement(sql("pipeline_levels_before"), params, lambda rows: [Level(*row) for row in rows]).run
        )

    def put_levels(self, lake: str, days: Mapping[date, Sequence[Level]]) -> None:
        rows = [
            {"lake": lake, "day": day.isoformat(), "queue_id": of.queue_id, "net": of.depth, "dead_net": of.dead}
            for day, levels in days.items()
            for of in levels
        ]
        params = {"lake": lake, "days": list(days), "rows": json.dumps(rows)}
        self._reach.ask(Statement(sql("pipeline_put_levels"), params, lambda rows: None).run)

    def outlook(self, now: datetime, until: datetime) -> Outlook:
        return self._reach.ask(Statement(sql("pipeline_outlook"), {"now": now, "until": until}, _outlook).run)

    def _newest(
        self, verb: LiteralString, decode: Callable[[Row], R], queue: str | None, limit: int | None, **params: Any
    ) -> list[R]:
        """The newest rows within the limit, in ascending order; the database returns them newest first."""
        asked = {**insights.EVERYTHING, **params, "limit": None if limit is None else insights.limited(limit)}
        return self._reach.ask(lambda: insights.about(queue, verb, decode, asked))[::-1]


def _counting(verb: LiteralString, params: Mapping[str, Any]) -> Statement[int]:
    return Statement(sql(verb), params, lambda rows: rows[0][0])


def _fact(row: Row) -> MessageFact:
    return MessageFact(
        queue=row[0], version=row[1], settled_at=row[2], offered_at=row[3], due_at=row[4], first_leased_at=row[5],
        origin=row[6], wait_s=row[7], processing_s=row[8], size=row[9], attempts=row[10], redeliveries=row[11],
        priority=row[12], outcome=FactOutcome(row[13]), reason=row[14], key=row[15], consumer=row[16],
        last_error=row[17], run_id=row[18], fresh_at=row[19],
    )  # fmt: skip


def _forecast_minute(row: Row) -> ForecastMinute:
    return ForecastMinute(
        queue=row[0], minute=row[1], planned=row[2], retries=row[3], backlog=row[4], lag_s=row[5], saturated=row[6],
        run_id=row[7], fresh_at=row[8],
    )  # fmt: skip


def _metric_span(row: Row) -> MetricSpan:
    return MetricSpan(
        queue=row[0], minute=row[1], offered=row[2], leased=row[3], acked=row[4], nacked=row[5], expired=row[6],
        buried=row[7], depth=row[8], dead=row[9], lag=insights.quantiles(row, 10),
        processing=insights.quantiles(row, 13), fresh_at=row[16],
    )  # fmt: skip


def _forecast_span(row: Row) -> ForecastSpan:
    return ForecastSpan(queue=row[0], minute=row[1], last_minute=row[2], planned=row[3], retries=row[4], backlog=row[5])


def _outlook(rows: list[Row]) -> Outlook:
    standings: dict[int, Standing] = {}
    planned: list[Planned] = []
    for queue_id, queue, target_lag_s, paused, minute, n, retried, held in rows:
        # Messages already due come first and have no minute.
        due = minute is None
        standings.setdefault(
            queue_id,
            Standing(
                queue_id=queue_id,
                queue=queue,
                ready=(n or 0) - (held or 0) if due else 0,
                leased=(held or 0) if due else 0,
                target_lag_s=target_lag_s,
                paused=paused,
            ),
        )
        if not due:
            planned.append(Planned(queue_id, minute, n, retried))
    return Outlook(tuple(standings.values()), tuple(planned))
