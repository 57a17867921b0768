"""Spark for tests: one session per test process, and small helpers around it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import tarry
from tarry.app import App
from tarry.core.journal.events import JournalLevel
from tests.kit.directories import new_directory

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# A failed task is tried again, up to 4 times in all: what a cluster does, and plain `local` does not.
MASTER = "local[2,4]"
CONFIG = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.driver.memory": "1g",
    # Tests end before a second compiler pays off. With the first alone Java keeps 48 MB of code by default: it would discard
    # code and compile it again. A small young generation would be collected often.
    "spark.driver.extraJavaOptions": (
        "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC -Xms1g -Xmn500m"
    ),
    # Small frames in small queries: generating code costs more than it saves.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.python.daemon.module": "spark_daemon",
    # Plans of a thousand queries, kept for the UI, fill the old generation: it would be collected again and again.
    "spark.sql.ui.retainedExecutions": "100",
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
}
PYTHON_PATH = os.pathsep.join([str(Path(__file__).parents[2]), str(Path(__file__).with_name("spark_python"))])
"""For the Python processes of Spark: they import the tests' own functions by name, and start in less time."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one session of this test process. Starting it takes seconds, so no test makes another."""
    from tarry.edges.spark.session import keep_for_jobs, session

    directory = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([PYTHON_PATH, os.environ.get("PYTHONPATH", "")]))
        patch.setenv("SPARK_LOCAL_DIRS", str(directory))
        made = session(MASTER, {**CONFIG, "spark.sql.warehouse.dir": str(directory / "warehouse")})
        # A child for each of hundreds of jobs would take a minute; test_session.py has one.
        yield keep_for_jobs(made)
        made.stop()


@pytest.fixture
def pipeline_app(database: str) -> Iterator[App]:
    """The library on a fresh database, by the database's own clock."""
    with tarry.connect(database, consumer="tester") as app:
        yield app


@pytest.fixture
def lake() -> Iterator[str]:
    """An empty place for an archive, below a directory with a name that the archive uses itself."""
    made = new_directory("tarry-lake-")
    above = made / "events"
    above.mkdir()
    yield str(above / "lake")
    shutil.rmtree(made, ignore_errors=True)


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    """The rows as tuples, in no particular order."""
    return [tuple(row) for row in frame.collect()]


def keys_in_files(lake: str) -> set[str | None]:
    """Of every data file below the lake, whether a table still has it or not."""
    import pyarrow.parquet as pq

    return {
        key
        for path in Path(lake).rglob("*.parquet")
        if "key" in (names := pq.read_schema(path).names)
        for key in pq.ParquetFile(path).read(["key"])["key"].to_pylist()
        if names
    }


def write_events(conn: psycopg.Connection[Any], n: int = 1, *, queue: str = "q", at: datetime | None = None) -> None:
    """Offered events of messages that never were, in the transaction of the connection: for tests of reading alone."""
    conn.execute(
        "insert into tarry.event (at, kind, queue, key, version, attempt, priority, due_at, size) "
        "select coalesce(%s, clock_timestamp()), 'offered', q.id, 'made-up-' || n, n, 0, 0, clock_timestamp(), 1 "
        "from tarry.queue q cross join generate_series(1, %s) n where q.name = %s",
        (at, n, queue),
    )


def busy(app: App) -> None:
    """A bit of everything that can happen to messages."""
    orders = app.queue("orders")
    app.queues.create("secrets", tarry.QueueSettings(journal=JournalLevel.PAYLOADS, max_attempts=2))
    secrets = app.queue("secrets")
    orders.offer_many([tarry.Message(payload={"n": i}, key=f"k{i}", priority=i % 3) for i in range(60)])
    orders.offer_many([tarry.Message(payload={"n": -i}, key=f"k{i}") for i in range(5)])
    orders.offer("later", 1, after=timedelta(days=3))
    for delivery in orders.try_poll_many(20):
        delivery.ack()
    for delivery in orders.try_poll_many(10):
        delivery.nack("it's broken", after=timedelta(0))
    for delivery in orders.try_poll_many(5):
        delivery.release()
    held = orders.try_poll_many(5)
    held[0].touch()
    orders.drop("k59")
    secrets.offer_many([tarry.Message(payload="x" * i, key=f"s{i}") for i in range(12)])
    for _ in range(3):
        for delivery in secrets.try_poll_many(6):
            delivery.nack("dead", after=timedelta(0))
    secrets.dead_letters.redrive(limit=2)
    app.queues.pause("secrets")


def journal(spark: SparkSession, app: App) -> list[Any]:
    """Every event, as the data source reads it."""
    from tarry.edges.spark.source.reader import register

    register(spark)
    return spark.read.format("tarry").option("dsn", app.dsn or "").load().collect()
