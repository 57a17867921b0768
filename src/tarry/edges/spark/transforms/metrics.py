# pyright: basic
"""Per queue and minute: counts, lag, durations, depth."""

from pyspark.sql import DataFrame

from tarry.edges.spark.transforms.quantiles import EXACT_UP_TO, marked, quantiles
from tarry.edges.spark.transforms.query import query, sql

COUNTED = (
    "offered", "updated", "redriven", "leased", "acked", "nacked", "released", "expired", "buried", "dropped",
    "discarded", "refused",
)  # fmt: skip
MEASURES = ("lag", "wait", "processing")
_MINUTES = "select *, timestamp_seconds(floor(unix_seconds(at) / 60) * 60) as minute from {traced}"


def measured(traced: DataFrame, exact_up_to: int | None = EXACT_UP_TO) -> DataFrame:
    percentiles = {measure: quantiles(f"{measure}_us") for measure in MEASURES}
    events = marked(_MINUTES, ["queue_id", "minute"], exact_up_to)
    return query(sql("measured", marked=events, **percentiles), traced=traced)


def with_depth(metrics: DataFrame, baseline: DataFrame) -> DataFrame:
    """`baseline` (queue_id, depth, dead) is the depth of each queue before the first of these minutes."""
    return query(sql("with_depth"), metrics=metrics, baseline=baseline)


def day_nets(metrics: DataFrame) -> DataFrame:
    return query(sql("day_nets"), metrics=metrics)
