"""Automatic registration of the data source: Spark imports modules named `pyspark_*` and registers their
`DefaultSource`.

`format("tarry")` works without further setup. Spark then applies filters itself, unless the reader sets
`option("pushdown", "true")` in a session that allows push-down; `tarry.spark.register(spark)` enables it permanently.
"""

from tarry.edges.spark.source.reader import TarryDataSource


class DefaultSource(TarryDataSource):
    pushdown_by_default = False
