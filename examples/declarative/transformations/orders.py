"""Datasets over the journal: `format("tarry")` is found by itself, and the database is that of TARRY_DSN."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.materialized_view
def endings() -> DataFrame:
    """How messages ended, per queue and hour."""
    events = spark.read.format("tarry").option("columns", "at,queue,kind").load()
    ended = events.where("kind in ('acked', 'nacked', 'buried', 'dropped')")
    return ended.selectExpr("queue", "date_trunc('hour', at) as hour", "kind").groupBy("queue", "hour", "kind").count()


@dp.table
def dead_letters() -> DataFrame:
    """Burials as they happen: a streaming table, which reads each event once."""
    events = spark.readStream.format("tarry").option("columns", "id,at,queue,key,kind,error").load()
    return events.where("kind = 'buried'").drop("kind")
