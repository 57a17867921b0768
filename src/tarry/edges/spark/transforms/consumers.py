# pyright: basic
"""Per consumer, queue and hour: leases, their outcomes, and processing times."""

from pyspark.sql import DataFrame

from tarry.edges.spark.transforms.quantiles import EXACT_UP_TO, marked, quantiles
from tarry.edges.spark.transforms.query import query, sql


def consumer_hours(traced: DataFrame, exact_up_to: int | None = EXACT_UP_TO) -> DataFrame:
    acts = marked(sql("consumer_acts"), ["queue_id", "consumer", "hour"], exact_up_to)
    return query(sql("consumer_hours", marked=acts, processing=quantiles("processing_us")), traced=traced)
