# pyright: basic
"""Forecast job: the load of the next days per minute, compared with the recent throughput.

The load is one query over the live table; the capacity comes from the metrics. The next tick of a schedule is already a
message; later ticks are computed from the schedules with the planner's code.
"""

import json
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tarry.app import App
from tarry.core.analytics.forecast import ForecastVerdict, sentence
from tarry.core.analytics.metrics import CurrentQueue, Table
from tarry.core.cron.planner import load_ahead
from tarry.core.errors import InvalidInput
from tarry.edges.formats import plural
from tarry.edges.spark.jobs import metrics
from tarry.edges.spark.lake.derived import rows_of_run
from tarry.edges.spark.lake.lake import Lake, own_lake
from tarry.edges.spark.lake.tables import LakeTable
from tarry.edges.spark.session import own_session
from tarry.edges.spark.sizing import FEW, local_frame, sized_for
from tarry.edges.spark.transforms.forecast import calibrated, capacities, forecast, recent, verdicts, with_load
from tarry.edges.spark.transforms.query import dated

JOB = "forecast"
TABLE = "forecast"
MINUTE = timedelta(minutes=1)
SEEN_FOR = timedelta(hours=1)
"""How far back workers are counted, since their number changes."""
_LONGEST = timedelta(days=60)
_SERVED = ("queue_id", "queue", "minute", "planned", "retries", "backlog", "lag_s", "saturated")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastArgs:
    lake: str | None = None
    ahead_for: timedelta = timedelta(days=7)
    capacity_for: timedelta = timedelta(hours=24)
    """How far back the throughput of a queue is measured."""

    def __post_init__(self) -> None:
        if not MINUTE <= self.ahead_for <= _LONGEST:
            raise InvalidInput("ahead_for must be between a minute and 60 days")
        if self.capacity_for < MINUTE:
            raise InvalidInput("capacity_for must be at least a minute")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastSummary:
    queues: int
    planned: int
    saturated: int
    """Queues that will fall behind, or are paused while messages wait."""
    sentences: tuple[str, ...]
    """One sentence per such queue, earliest saturation first."""

    def line(self) -> str:
        behind = (
            f", {self.saturated} of them behind: {self.sentences[0]}"
            if self.saturated
            else ", none is seen to fall behind"
        )
        return f"forecast: {plural(self.planned, 'message')} planned in {plural(self.queues, 'queue')}{behind}"


@own_session
def run(spark: SparkSession, app: App, args: ForecastArgs) -> ForecastSummary:
    """Compute the forecast as of now and replace the published one."""
    lake = own_lake(spark, app, args.lake)
    with ExitStack() as stack:
        noted = stack.enter_context(app.pipeline.manifest.run(JOB, exclusive=JOB, lake=lake.root))
        now = app.store.run(app.store.queues.now())
        outlook = app.pipeline.analytics.outlook(now, now + args.ahead_for)
        # From the minute that contains now to the one that contains the end.
        minutes = int((now + args.ahead_for).timestamp() // 60 - now.timestamp() // 60) + 1
        layout = stack.enter_context(sized_for(spark, len(outlook.standings) * minutes))
        kept = stack.enter_context(layout.keeping())
        standings = {standing.queue_id: standing for standing in outlook.standings}
        queues = [(of.queue_id, of.queue, of.ready, of.target_lag_s, of.paused) for of in outlook.standings]
        of_queue = "queue_id int, queue string, ready long, target_lag_s double, paused boolean"
        of_minute = "queue_id int, minute timestamp, planned long, retries long"
        ahead = kept(
            forecast(
                layout.read(local_frame(spark, queues, of_queue)),
                layout.read(local_frame(spark, outlook.planned, of_minute)),
                layout.read(_capacity(spark, lake, now, args.capacity_for)),
                now=now,
                minutes=minutes,
                schedules=layout.read(_schedules(spark, app, outlook.standings, now, now + args.ahead_for)),
            )
        )
        table = LakeTable(lake, TABLE)
        table.commit(with_load(ahead).selectExpr("*", f"{dated('minute')} as date"), table.files(), noted.id)
        judged = verdicts(ahead).toArrow().to_pylist()
        rows = [_row(row, standings[row["queue_id"]], args, noted.id, noted.started_at) for row in judged]
        app.pipeline.analytics.put(Table.FORECAST_MINUTES, rows_of_run(with_load(ahead), _SERVED, noted))
        app.pipeline.analytics.put(Table.FORECASTS, [json.dumps(row, default=datetime.isoformat) for row in rows])
        app.pipeline.analytics.keep_forecast(noted.id)
        behind = sorted(
            (row for row in rows if row["saturated_at"]), key=lambda row: (row["saturated_at"], row["queue"])
        )
        summary = ForecastSummary(
            queues=len(rows),
            planned=sum(row["planned"] for row in rows),
            saturated=len(behind),
            sentences=tuple(row["sentence"] for row in behind),
        )
        noted.summary = {name: value for name, value in asdict(summary).items() if name != "sentences"}
    return summary


def _schedules(
    spark: SparkSession, app: App, standings: tuple[CurrentQueue, ...], now: datetime, until: datetime
) -> DataFrame:
    """Ticks that are not messages yet, by the minute in which their messages will be due."""
    queues = {of.queue: of.queue_id for of in standings}
    planned: Counter[tuple[int, datetime]] = Counter()
    for queue, minute, count in load_ahead(app.schedules.list(), now, until):
        if queue in queues:
            planned[queues[queue], minute] += count
    rows = [(queue_id, minute, count) for (queue_id, minute), count in sorted(planned.items())]
    return local_frame(spark, rows, "queue_id int, minute timestamp, planned long")


def _capacity(spark: SparkSession, lake: Lake, now: datetime, over: timedelta) -> DataFrame:
    """Capacity per queue from the lake's metrics and the workers of the last hour; empty if there are none."""
    since, this_minute = now - over, now.replace(second=0, microsecond=0)
    table = LakeTable(lake, metrics.TABLE)
    minutes = table.read(spark, [file for file in table.files() if file.high["minute"] >= since])
    if minutes is None:
        return local_frame(spark, [], "queue_id int, capacity double")
    seen = capacities(minutes, since, this_minute)
    facts, seen_since = LakeTable(lake, "facts"), this_minute - min(over, SEEN_FOR)
    files = [file for file in facts.files() if file.high["settled_at"] >= seen_since]
    ended = facts.read(spark, files)
    if ended is None:
        return seen
    ended = ended.where(f"settled_at >= timestamp '{seen_since.isoformat()}'")
    if sum(file.rows for file in files) > FEW:
        ended = recent(ended, minutes, seen_since)
    known = calibrated(ended).select("queue_id", "capacity")
    return seen.unionByName(known).groupBy("queue_id").agg({"capacity": "max"}).toDF("queue_id", "capacity")


def _row(
    row: dict[str, Any], standing: CurrentQueue, args: ForecastArgs, run_id: int, fresh_at: datetime
) -> dict[str, Any]:
    names = ("queue", "planned", "capacity", "saturated_at", "recovered_at", "peak_backlog", "peak_at")
    verdict = ForecastVerdict(ready=standing.ready, paused=standing.paused, **{name: row[name] for name in names})
    text = sentence(verdict, ahead_for=args.ahead_for, capacity_for=args.capacity_for)
    return {**row, "sentence": text, "run_id": run_id, "fresh_at": fresh_at}
