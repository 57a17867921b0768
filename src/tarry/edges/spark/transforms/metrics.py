# pyright: basic
"""Counts, lag, durations and depth per queue and minute."""

from pyspark.sql import DataFrame

from tarry.edges.spark.schemas import struct
from tarry.edges.spark.transforms.query import query, sql, stored_or_nothing
from tarry.edges.spark.transforms.sketches import EXACT_UP_TO, FREQUENCIES, POINTS, sketched

COUNTED = (
    "offered", "updated", "redriven", "leased", "acked", "nacked", "released", "expired", "buried", "dropped",
    "discarded", "refused",
)  # fmt: skip
MEASURES = ("lag", "wait", "processing")
PERCENTILES = tuple(f"{measure}_{name}_s" for measure in MEASURES for name in POINTS)
MINUTES = struct(
    "queue_id int, minute timestamp, round long, queue string, last_id long, "
    + ", ".join(f"{name} long" for name in (*COUNTED, "bytes_offered", "net", "dead_net"))
    + ", "
    + ", ".join(f"{name} double" for name in PERCENTILES)
    + ", lag map, wait map, processing map, size map, operation map, exact boolean, depth long, dead long, date date",
    **dict.fromkeys((*MEASURES, "size", "operation"), FREQUENCIES),
)
"""`net` and `dead_net`: change of `depth` and `dead`. `round`: the last round that changed the row; it is among the first
columns because Delta tables keep statistics of only 32.
"""


def measured(traced: DataFrame, stored: DataFrame | None = None, *, exact_up_to: int = EXACT_UP_TO) -> DataFrame:
    """New events, added to the stored rows of their minutes; `with_depth` completes them."""
    rows, frames = stored_or_nothing(stored, MINUTES)
    text = sql("measured", stored=rows, sketched=sketched())
    return query(text, {"exact_up_to": exact_up_to}, traced=traced, **frames)


def with_depth(minutes: DataFrame, levels: DataFrame, *, number: int = 0) -> DataFrame:
    """`MINUTES`. `levels` (queue_id, depth, dead): the state after the last of these minutes."""
    return query(sql("with_depth"), {"number": number}, minutes=minutes, levels=levels)
