"""Sketches of durations: mergeable by addition, exact for small groups and within 1 % for large ones."""

from pyspark.sql.types import LongType, MapType

from tarry.edges.spark.transforms.query import sql

EXACT_UP_TO = 100
"""Maximum number of different values per group with exact percentiles. Beyond it they are within 1 %."""
POINTS = ("p50", "p95", "p99")
FREQUENCIES = MapType(LongType(), LongType())
"""Frequencies by microseconds."""


def sketched() -> str:
    """A query over `tallies`: subject, measure, value, n."""
    return sql("sketched", tallies="select * from tallies")
