# pyright: basic
"""Rules about many messages at once: bulk operations, a purged queue, a consumer with a burst of leases."""

from dataclasses import dataclass

from pyspark.sql import DataFrame

from tarry.edges.spark.transforms.anomalies.context import ENOUGH, DetectorContext
from tarry.edges.spark.transforms.anomalies.registry import detector
from tarry.edges.spark.transforms.query import query, sql


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


@detector(name="bulk_enqueue", severity="info", settings=Bulk(), kinds=("offered", "updated"))
def bulk_enqueue(context: DetectorContext, settings: Bulk) -> DataFrame:
    """Offers in one transaction."""
    return _bulk(context, settings, "were offered to queue", "offered", "updated", measure="operation")


@detector(name="bulk_delete", severity="info", settings=Bulk(), kinds=("dropped", "discarded"))
def bulk_delete(context: DetectorContext, settings: Bulk) -> DataFrame:
    """Live messages or dead letters."""
    return _bulk(context, settings, "were removed from queue", "dropped", "discarded", cleared="queue_purged")


@detector(name="bulk_move", severity="info", settings=Bulk(), kinds=("redriven",))
def bulk_move(context: DetectorContext, settings: Bulk) -> DataFrame:
    """Dead letters that were redriven."""
    return _bulk(context, settings, "were redriven in queue", "redriven")


def _bulk(
    context: DetectorContext, settings: Bulk, happened: str, *kinds: str, measure: str = "", cleared: str | None = None
) -> DataFrame:
    """`measure`: what is usual. `cleared`: transactions with an event of this kind are left out."""
    text = sql("anomalies/bulk", operations=sql("anomalies/operations", events="select * from judged"))
    args = context.args(enough=ENOUGH, at_least=settings.at_least, happened=happened, measure=measure)
    without = context.events.limit(0) if cleared is None else context.events_of(cleared)
    return query(text, args, events=context.events_of(*kinds), cleared=without, profiles=context.profiles)


@detector(name="queue_cleared", severity="warning", settings=Bulk(at_least=1), kinds=("queue_purged",))
def queue_cleared(context: DetectorContext, settings: Bulk) -> DataFrame:
    args = context.args(at_least=settings.at_least)
    return query(sql("anomalies/queue_cleared"), args, events=context.events_of("queue_purged"))


@detector(name="burst_dequeue", severity="warning", settings=BurstDequeue(), kinds=("leased",))
def burst_dequeue(context: DetectorContext, settings: BurstDequeue) -> DataFrame:
    span = {"span_us": int(settings.within_s * 1_000_000), "span": f"{settings.within_s:g}"}
    args = context.args(enough=ENOUGH, at_least=settings.at_least, **span)
    return query(sql("anomalies/burst_dequeue"), args, events=context.events_of("leased"), profiles=context.profiles)


OPERATION_RULES = (burst_dequeue, bulk_enqueue, bulk_delete, bulk_move, queue_cleared)
