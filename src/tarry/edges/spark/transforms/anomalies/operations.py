# pyright: basic
"""Rules about many messages at once: bulk operations, a purged queue, a consumer with a burst of leases."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from tarry.edges.spark.transforms.anomalies.context import DetectorContext
from tarry.edges.spark.transforms.anomalies.findings import filled, journal_of, or_nothing
from tarry.edges.spark.transforms.anomalies.messages import ENOUGH, judged, with_habit
from tarry.edges.spark.transforms.anomalies.registry import detector
from tarry.edges.spark.transforms.instants import dated


@dataclass(frozen=True)
class Bulk:
    """Settings of bulk_enqueue, bulk_delete, bulk_move and queue_cleared."""

    at_least: int = 10
    most_per_hour: int = 20


@dataclass(frozen=True)
class BurstDequeue:
    at_least: int = 50
    within_s: float = 5
    most_per_hour: int = 20


def operations(events: DataFrame) -> DataFrame:
    """One row per queue and transaction: the number of messages it touched, and its bounds."""
    return events.groupBy("queue_id", "xid").agg(
        F.max_by("queue", "id").alias("queue"),
        F.min("id").alias("id"),
        F.count_distinct("id").alias("count"),
        F.min("at").alias("window_from"),
        F.max("at").alias("window_to"),
    )


@detector(name="bulk_enqueue", severity="info", settings=Bulk())
def bulk_enqueue(context: DetectorContext, settings: Bulk) -> DataFrame:
    """Offers in one transaction. Where large group commits are usual, only larger ones are reported."""
    counted = operations(judged(context, "offered", "updated")).withColumn("date", dated(F.col("window_from")))
    bulk = with_habit(counted, context, "operation").where(
        (F.col("count") >= settings.at_least) & (F.col("count") > F.coalesce("p99", F.lit(0.0)))
    )
    return _bulk(bulk.withColumn("expected_high", F.col("p99")), "were offered to queue")


@detector(name="bulk_delete", severity="info", settings=Bulk())
def bulk_delete(context: DetectorContext, settings: Bulk) -> DataFrame:
    """Live messages or dead letters. A purge of the queue is reported by `queue_cleared` instead."""
    cleared = judged(context, "queue_purged").select("queue_id", "xid")
    counted = operations(judged(context, "dropped", "discarded")).join(cleared, ["queue_id", "xid"], "left_anti")
    return _bulk(counted.where(F.col("count") >= settings.at_least), "were removed from queue")


@detector(name="bulk_move", severity="info", settings=Bulk())
def bulk_move(context: DetectorContext, settings: Bulk) -> DataFrame:
    """Dead letters that were redriven."""
    counted = operations(judged(context, "redriven"))
    return _bulk(counted.where(F.col("count") >= settings.at_least), "were redriven in queue")


@detector(name="queue_cleared", severity="warning", settings=Bulk(at_least=1))
def queue_cleared(context: DetectorContext, settings: Bulk) -> DataFrame:
    """Also for a queue without a journal: this event is always written."""
    count = F.get_json_object("detail", "$.count").cast("long")
    cleared = (
        judged(context, "queue_purged").withColumn("observed", count).where(F.col("observed") >= settings.at_least)
    )
    sentence = filled("Queue {queue} was cleared: {observed:number} live messages are gone.")
    evidence = journal_of(None, "kind in ('queue_purged', 'dropped')")
    return cleared.withColumns({"sentence": sentence, "evidence": evidence, "identity": F.col("id").cast("string")})


@detector(name="burst_dequeue", severity="warning", settings=BurstDequeue())
def burst_dequeue(context: DetectorContext, settings: BurstDequeue) -> DataFrame:
    """Counts leases in every span of `within_s` seconds; a continuing burst is one anomaly.

    The usual value is that of the consumer's own busy spans before, or of all consumers of the queue while this one is
    new.
    """
    span_us = int(settings.within_s * 1_000_000)
    # A lease adds one at its instant and subtracts one a span later: a running sum, which Spark computes in one pass. A
    # sliding frame is summed again for every row, which takes hours for a million leases of one consumer.
    at_once = (
        context.events.where("kind = 'leased'")
        .groupBy("queue_id", "consumer", F.unix_micros("at").alias("us"))
        .agg(F.count(F.lit(1)).alias("n"), F.min("id").alias("id"), F.max_by("queue", "id").alias("queue"))
    )
    comes = F.struct(F.col("us").alias("moment"), F.col("n").alias("step"))
    goes = F.struct((F.col("us") + span_us).alias("moment"), (-F.col("n")).alias("step"))
    of_consumer = Window.partitionBy("queue_id", "consumer").orderBy("moment")
    steps = at_once.select("queue_id", "consumer", "queue", "id", F.inline(F.array(comes, goes)))
    busy = steps.withColumn("count", F.sum("step").over(of_consumer)).where(
        (F.col("step") > 0) & (F.col("count") >= settings.at_least)
    )
    begins = F.coalesce(F.col("moment") - F.lag("moment").over(of_consumer) > span_us, F.lit(True))
    marked = busy.withColumn("begins", begins.cast("int"))
    numbered = marked.withColumn("burst", F.sum("begins").over(of_consumer))
    bursts = numbered.groupBy("queue_id", "consumer", "burst").agg(
        F.max_by("queue", "id").alias("queue"),
        F.min("id").alias("id"),
        F.max("count").alias("observed"),
        F.timestamp_micros(F.min("moment") - span_us).alias("window_from"),
        F.timestamp_micros(F.max("moment")).alias("window_to"),
    )
    bursts = bursts.where(context.within(F.col("window_from"), F.col("window_to")))
    bursts = bursts.withColumn("date", dated(F.col("window_to")))
    usual = F.broadcast(
        context.profiles.where((F.col("measure") == "taken") & F.col("consumer").isNotNull() & (F.col("n") >= ENOUGH))
        .select("date", "queue_id", "consumer", F.col("p99").alias("own"))
    )  # fmt: skip
    judged_bursts = with_habit(bursts.join(usual, ["date", "queue_id", "consumer"], "left"), context, "taken")
    high = F.coalesce("own", "p99")
    unusual = judged_bursts.withColumn("expected_high", high).where(F.col("observed") > F.coalesce(high, F.lit(0.0)))
    sentence = filled(
        f"In queue {{queue}}, {{consumer:named}} took {{observed:number}} messages within {settings.within_s:g} s{{usual}}. "
        "Others may be left without work.",
        usual=or_nothing(filled("; up to {expected_high:number} is usual")),
    )
    evidence = filled(
        "select consumer, date_trunc('second', at) as second, count(*) from tarry.journal where queue = {queue:sql} and "
        "kind = 'leased' and {consumer} and at >= {window_from:instant} and at <= {window_to:instant} group by 1, 2 "
        "order by 2",
        consumer=F.coalesce(filled("consumer = {consumer:sql}"), F.lit("consumer is null")),
    )
    score = F.col("observed") / F.coalesce("expected_high", F.lit(float(settings.at_least)))
    return unusual.withColumns({"score": score, "sentence": sentence, "evidence": evidence})


def _bulk(frame: DataFrame, happened: str) -> DataFrame:
    evidence = filled("select * from tarry.journal where xid::text::bigint = {xid} and queue = {queue:sql} order by id")
    return frame.withColumns(
        {
            "observed": F.col("count"),
            "sentence": filled(f"{{count:number}} messages {happened} {{queue}} in one operation."),
            "evidence": evidence,
            "identity": F.col("id").cast("string"),
        }
    )


OPERATION_RULES = (burst_dequeue, bulk_enqueue, bulk_delete, bulk_move, queue_cleared)
