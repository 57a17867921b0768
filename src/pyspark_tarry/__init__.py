"""Spark looks for modules named `pyspark_*` and registers their `DefaultSource`: `format("tarry")` works unprepared.

Filters are then applied by Spark, as long as nobody says `option("pushdown", "true")` in a session that allows it;
`tarry.spark.register(spark)` allows it for good.
"""

from tarry.edges.spark.source import TarryDataSource


class DefaultSource(TarryDataSource):
    pushdown_by_default = False
