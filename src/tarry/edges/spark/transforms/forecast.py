# pyright: basic
"""Forecast per queue: messages that come due in each minute, against the recent throughput per minute.

Frames:
  queues     queue_id, queue, ready (deliverable now), target_lag_s, paused
  planned    queue_id, minute, planned, retries    live messages by the minute in which they come due
  capacity   queue_id, capacity                    messages a minute
  schedules  queue_id, minute, planned             ticks that are not messages yet
"""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from tarry.edges.spark.transforms.instants import MINUTE

CAPACITY_POINT = 0.95


def capacities(metrics: DataFrame, since: datetime, until: datetime) -> DataFrame:
    """Throughput of each queue in a busy minute: the 95th percentile of acks over the minutes that had any.

    It is the observed throughput, not the maximum: consumers that were never saturated may be faster. `until` excludes
    the current, incomplete minute.
    """
    minute = F.col("minute")
    busy = metrics.where((F.col("acked") > 0) & (minute >= F.lit(since)) & (minute < F.lit(until)))
    return busy.groupBy("queue_id").agg(F.percentile(F.col("acked"), F.lit(CAPACITY_POINT)).alias("capacity"))


def forecast(
    queues: DataFrame,
    planned: DataFrame,
    capacity: DataFrame,
    *,
    now: datetime,
    minutes: int,
    schedules: DataFrame | None = None,
) -> DataFrame:
    """Every queue and minute, starting with that of `now`: the load, the capacity and the backlog.

    The backlog is carried over: b' = max(0, b + planned - capacity). With S the running sum of planned - capacity plus
    the messages ready now, that is S - min(0, lowest S so far), which two windows compute.
    """
    load = planned.select("queue_id", "minute", "planned", "retries")
    if schedules is not None:
        load = load.unionByName(
            schedules.select("queue_id", "minute", "planned", F.lit(0).cast("long").alias("retries"))
        )
    load = load.groupBy("queue_id", "minute").agg(F.sum("planned").alias("planned"), F.sum("retries").alias("retries"))
    first = int(now.timestamp()) // MINUTE * MINUTE
    # Of the current minute, only the rest is left.
    left = 1 - (now.timestamp() - first) / MINUTE
    last = first + (minutes - 1) * MINUTE
    seconds = F.explode(F.sequence(F.lit(first), F.lit(last), F.lit(MINUTE)))
    every_minute = queues.withColumn("_s", seconds).withColumn("minute", F.timestamp_seconds("_s")).drop("_s")
    rate = F.when(F.col("paused"), F.lit(0.0)).otherwise(F.col("capacity"))
    share = F.when(F.unix_seconds("minute") == first, F.lit(left)).otherwise(F.lit(1.0))
    of_queue = Window.partitionBy("queue_id").orderBy("minute").rowsBetween(Window.unboundedPreceding, 0)
    surplus = F.col("planned") - F.coalesce("capacity", F.lit(0.0)) * share
    return (
        every_minute.join(F.broadcast(capacity), "queue_id", "left")
        .join(load, ["queue_id", "minute"], "left")
        .fillna(0, ["planned", "retries"])
        .withColumn("capacity", rate)
        .withColumn("_sum", F.col("ready") + F.sum(surplus).over(of_queue))
        .withColumn("backlog", F.col("_sum") - F.least(F.lit(0.0), F.min("_sum").over(of_queue)))
        .withColumn("lag_s", F.when(F.col("capacity") > 0, F.col("backlog") / F.col("capacity") * MINUTE))
        # With a capacity of zero, any backlog is late; with an unknown capacity, the result is null.
        .withColumn(
            "saturated",
            F.coalesce(F.col("lag_s") > F.col("target_lag_s"), (F.col("capacity") == 0) & (F.col("backlog") > 0)),
        )
        .select("queue_id", "queue", "minute", "planned", "retries", "capacity", "backlog", "lag_s", "saturated")
    )


def verdicts(forecast: DataFrame) -> DataFrame:
    """One row per queue: when it first falls behind, when it has caught up, and its largest backlog."""
    first = F.min(F.when(F.col("saturated"), F.col("minute"))).over(Window.partitionBy("queue_id"))
    late = F.col("minute") >= F.col("saturated_at")
    return (
        forecast.withColumn("saturated_at", first)
        .groupBy("queue_id")
        .agg(
            F.first("queue").alias("queue"),
            F.first("capacity").alias("capacity"),
            F.sum("planned").alias("planned"),
            F.sum("retries").alias("retries"),
            F.max("saturated_at").alias("saturated_at"),
            F.min(F.when(late & ~F.col("saturated"), F.col("minute"))).alias("recovered_at"),
            F.max("backlog").alias("peak_backlog"),
            F.max_by("minute", F.struct("backlog", -F.unix_seconds("minute"))).alias("peak_at"),
        )
    )


def with_load(forecast: DataFrame) -> DataFrame:
    """Without the minutes that have neither load nor backlog: most of a week, for most queues."""
    return forecast.where((F.col("planned") > 0) | (F.col("backlog") > 0))
