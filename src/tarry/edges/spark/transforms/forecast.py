# pyright: basic
"""Forecast per queue: messages due in each minute, compared with the recent throughput.

Frames:
  queues     queue_id, queue, ready (deliverable now), target_lag_s, paused
  planned    queue_id, minute, planned, retries    live messages by the minute in which they come due
  capacity   queue_id, capacity                    messages a minute
  schedules  queue_id, minute, planned             ticks that are not messages yet
"""

from datetime import datetime

from pyspark.sql import DataFrame

from tarry.edges.spark.transforms.query import query, sql

ENOUGH = 5_000
"""Minimum number of messages that show how many workers a queue has."""
_MINUTE = 60


def capacities(metrics: DataFrame, since: datetime, until: datetime) -> DataFrame:
    return query(sql("capacities"), {"since": since, "until": until}, metrics=metrics)


def recent(facts: DataFrame, metrics: DataFrame, since: datetime, *, enough: int = ENOUGH) -> DataFrame:
    return query(sql("recent"), {"since": since, "enough": enough}, facts=facts, metrics=metrics)


def calibrated(facts: DataFrame) -> DataFrame:
    """Workers, mean service time and resulting capacity per queue."""
    return query(sql("calibrated"), facts=facts)


def forecast(
    queues: DataFrame,
    planned: DataFrame,
    capacity: DataFrame,
    *,
    now: datetime,
    minutes: int,
    schedules: DataFrame | None = None,
) -> DataFrame:
    first = int(now.timestamp()) // _MINUTE * _MINUTE
    rest = 1 - (now.timestamp() - first) / _MINUTE
    args = {"first": first, "last": first + (minutes - 1) * _MINUTE, "rest": rest}
    ticks = planned.limit(0) if schedules is None else schedules
    return query(sql("forecast"), args, queues=queues, planned=planned, capacity=capacity, schedules=ticks)


def verdicts(forecast: DataFrame) -> DataFrame:
    return query(sql("verdicts"), forecast=forecast)


def with_load(forecast: DataFrame) -> DataFrame:
    """The minutes with load or backlog, a small part of a week for most queues."""
    return forecast.where("planned > 0 or backlog > 0")
