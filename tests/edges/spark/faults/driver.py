"""A driver of its own that runs the jobs named on its standard input, one line each, until it is killed:
`python -m tests.edges.spark.faults.driver DSN LAKE MASTER`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import tarry
from tarry.app import App
from tarry.edges.spark.jobs import archive, compact, facts, forget
from tarry.edges.spark.jobs.archive import ArchiveArgs
from tarry.edges.spark.jobs.compact import CompactArgs
from tarry.edges.spark.jobs.facts import FactsArgs
from tarry.edges.spark.jobs.forget import ForgetArgs
from tarry.edges.spark.session import session
from tarry.edges.spark.sink.writer import offer
from tarry.edges.spark.source.reader import register
from tests.kit.spark import CONFIG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCH_ROWS = 5_000
SINK_ROWS = 2_000
ONE_COMPILER = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Each JVM is killed before a second compiler pays off."""
SMALL = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "640m",
    "spark.driver.extraJavaOptions": ONE_COMPILER,
    "spark.executor.extraJavaOptions": ONE_COMPILER,
    "spark.python.daemon.module": "pyspark.daemon",  # the tests' own is not on the path of a cluster's workers
}


def jobs_on(spark: SparkSession, app: App, lake: str) -> Mapping[str, Callable[[str], Any]]:
    """Each with one argument: the number of a write, or the key to forget."""

    def sink(number: str) -> None:
        rows = spark.range(0, SINK_ROWS, 1, 4).selectExpr(f"concat('w{number}-', id) as key", "struct(id) as payload")
        offer(rows, app.pipeline.dsn, queue="sunk", write_id=f"w{number}")

    return {
        "archive": lambda _: archive.run(spark, app, ArchiveArgs(lake=lake, batch_rows=BATCH_ROWS)),
        "compact": lambda _: compact.run(spark, app, CompactArgs(lake=lake, at_least=2)),
        "facts": lambda _: facts.run(spark, app, FactsArgs(lake=lake)),
        "forget": lambda key: forget.run(spark, app, ForgetArgs(queue="people", key=key)),
        "sink": sink,
    }


def main(dsn: str, lake: str, master: str) -> None:
    spark = session(master, {**CONFIG, **SMALL})
    register(spark)
    with tarry.connect(dsn) as app:
        jobs = jobs_on(spark, app, lake)
        print("ready", flush=True)
        for line in sys.stdin:
            job, _, argument = line.strip().partition(" ")
            jobs[job](argument)
            print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
