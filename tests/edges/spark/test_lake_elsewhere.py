"""A lake that is no directory of this machine, but a URI of Hadoop's: written, listed and cleared as Spark does it.

There is no object store where this runs. A mount table of Hadoop's own (`viewfs`) is none either, but for us it is alike: a
scheme that only Spark knows how to reach.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg
import pytest

import tarry
from tarry.app import App
from tarry.core.errors import TarryError
from tarry.edges.spark.jobs import archive, compact, facts, prune, verify
from tarry.edges.spark.jobs.archive import ArchiveArgs
from tarry.edges.spark.jobs.compact import CompactArgs
from tarry.edges.spark.jobs.facts import FactsArgs
from tarry.edges.spark.jobs.prune import PruneArgs
from tarry.edges.spark.jobs.verify import VerifyArgs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def behind(lake: str) -> Path:
    """Where the files are in truth."""
    made = Path(lake)
    made.mkdir()
    return made


@pytest.fixture
def uri(spark: SparkSession, behind: Path) -> str:
    mount = f"lake{uuid4().hex[:8]}"
    context: Any = spark.sparkContext
    context._jsc.hadoopConfiguration().set(f"fs.viewfs.mounttable.{mount}.link./there", f"file:{behind}")
    return f"viewfs://{mount}/there/lake"


def test_every_job_that_writes_lists_or_deletes_knows_its_way_there(
    spark: SparkSession, pipeline_app: App, uri: str, behind: Path
) -> None:
    def live_and_archive(n: int) -> None:
        orders = pipeline_app.queue("orders")
        orders.offer_many([tarry.Message(payload=i, key=f"{n}-{i}") for i in range(10)])
        for delivery in orders.try_poll_many(6):
            delivery.ack()
        assert archive.run(spark, pipeline_app, ArchiveArgs(lake=uri)).batches == 1

    def lying(pattern: str) -> list[str]:
        return sorted(path.name for path in (behind / "lake").glob(pattern))

    live_and_archive(1)
    live_and_archive(2)
    with pytest.raises(TarryError, match="have a Delta log, which cannot be written there"):
        facts.run(spark, pipeline_app, FactsArgs(lake=uri))
    (behind / "lake" / "events" / "batch=00009999").mkdir()
    assert compact.run(spark, pipeline_app, CompactArgs(lake=uri, at_least=2)).batches_after == 1
    assert pipeline_app.dsn is not None
    with psycopg.connect(pipeline_app.dsn) as conn:
        conn.execute("update tarry.archive_batch set replaced_at = replaced_at - interval '2 hours'")
    compact.run(spark, pipeline_app, CompactArgs(lake=uri))
    assert lying("events/*") == ["batch=00000003"], "merged, and merged or unowned files are gone"
    assert prune.run(spark, pipeline_app, PruneArgs(lake=uri, retention=True)).retired_files == 0

    verified = verify.run(spark, pipeline_app, VerifyArgs(lake=uri))
    assert (verified.problems, verified.live) == ((), 8)
    (file,) = behind.rglob("batch=00000003/**/*.parquet")
    file.unlink()
    verified = verify.run(spark, pipeline_app, VerifyArgs(lake=uri))
    assert verified.problems[0].what == "files of the lake are gone: 1"
