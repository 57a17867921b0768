# pyright: basic
"""Leases, their outcomes, and processing times per consumer, queue and hour."""

from pyspark.sql import DataFrame

from tarry.edges.spark.schemas import struct
from tarry.edges.spark.transforms.query import query, sql, stored_or_nothing
from tarry.edges.spark.transforms.sketches import EXACT_UP_TO, FREQUENCIES, sketched

HOURS = struct(
    "queue_id int, consumer string, hour timestamp, round long, queue string, last_id long, leased long, acked long, "
    "failed long, expired long, released long, processing_p50_s double, processing_p95_s double, "
    "processing_p99_s double, processing map, taken map, exact boolean, success_rate double, share double, date date",
    processing=FREQUENCIES,
    taken=FREQUENCIES,
)


def consumer_hours(traced: DataFrame, stored: DataFrame | None = None, *, number: int = 0) -> DataFrame:
    """`HOURS`: new events, added to the stored rows of their hours."""
    rows, frames = stored_or_nothing(stored, HOURS)
    args = {"number": number, "exact_up_to": EXACT_UP_TO}
    return query(sql("consumer_hours", stored=rows, sketched=sketched()), args, traced=traced, **frames)
