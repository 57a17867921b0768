# pyright: basic
"""Wide reads: with Spark's JDBC source if PostgreSQL's driver is present, otherwise with the data source `tarry`.

Rows of the data source pass through a Python process, JDBC rows do not, which is faster for many columns. The queries are the
same.
"""

import math
from collections.abc import Sequence
from datetime import datetime
from functools import reduce
from typing import Any
from urllib.parse import quote

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tarry.core.journal.snapshots import ServerAddress
from tarry.edges.spark.source.options import parse
from tarry.edges.spark.source.reader import register
from tarry.pipeline import pipeline_on

DRIVER = "org.postgresql.Driver"
_FETCHED = 10_000
"""Rows in memory per task."""
_SLICES = 4
"""Slices of the data source, which holds one in memory, per JDBC task: each task opens a connection."""


def read(
    spark: SparkSession,
    dsn: str,
    table: str = "events",
    *,
    columns: Sequence[str] | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    partitions: int | None = None,
) -> DataFrame:
    """The rows of a table, read in the faster way. The arguments are options of `spark.read.format("tarry")`."""
    given = {"dsn": dsn, "table": table, "columns": None if columns is None else ",".join(columns)}
    given |= {"since": since and since.isoformat(), "until": until and until.isoformat()}
    given |= {"partitions": None if partitions is None else str(partitions)}
    texts: dict[str, str] = {name: text for name, text in given.items() if text is not None}
    options = parse(texts)
    address = pipeline_on(options.dsn).windows.tcp_address() if has_driver(spark) else None
    if address is None:
        register(spark)
        return spark.read.format("tarry").options(**texts).load()
    scan, windows, cores = options.scan, pipeline_on(options.dsn).windows, spark.sparkContext.defaultParallelism
    reads = windows.reads(scan, None, partitions=options.partitions)
    if options.partitions is None:
        # The same number for each core, so no core waits for the last task.
        each = math.ceil(sum(len(read.shares) for read in reads) / _SLICES / cores)
        reads = windows.reads(scan, None, partitions=max(1, each) * cores)
    url, properties = connection(address)
    frames = [
        spark.read.jdbc(url, f"({read.query}) s", predicates=[share.where for share in read.shares], properties=properties)
        .select(*scan.columns)
        for read in reads
    ]  # fmt: skip
    return reduce(DataFrame.unionAll, frames) if frames else spark.createDataFrame([], options.schema)


def has_driver(spark: SparkSession) -> bool:
    """Whether this session has PostgreSQL's driver. False with Spark Connect, whose JVM is remote."""
    try:
        jvm: Any = spark.sparkContext._jvm
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(DRIVER)
    except (Py4JError, PySparkException):
        return False
    return True


def connection(address: ServerAddress) -> tuple[str, dict[str, str]]:
    """URL and properties for `spark.read.jdbc`."""
    host = f"[{address.host}]" if ":" in address.host else address.host
    properties = {
        "user": address.user,
        "password": address.password,
        "sslmode": address.sslmode,
        "driver": DRIVER,
        "fetchsize": str(_FETCHED),
        "ApplicationName": "tarry",
    }
    return f"jdbc:postgresql://{host}:{address.port}/{quote(address.database, safe='')}", properties
