"""The Delta log names what the manifest names, read by a library that knows nothing of Tarry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import tarry
from tarry.app import App
from tarry.edges.spark.jobs import archive, compact
from tarry.edges.spark.jobs.archive import ArchiveArgs
from tarry.edges.spark.jobs.compact import CompactArgs
from tarry.edges.spark.lake import delta
from tarry.edges.spark.lake.lake import read_events
from tests.kit.spark import rows_of

QUEUES = ("orders", "7", "a.b-c")


def offered(app: App, n: int = 5) -> None:
    for name in QUEUES:
        app.queue(name).offer_many([tarry.Message(payload=i) for i in range(n)])


def read_by_delta(lake: str) -> list[Any]:
    """Queue by the partition and by the file, and id: of every row."""
    table = DeltaTable(str(Path(lake) / "events"))
    rows = table.to_pyarrow_table(columns=["queue", "queue_name", "id"])
    return sorted(tuple(row.values()) for row in rows.to_pylist())


def files_by_delta(lake: str) -> set[str]:
    table = DeltaTable(str(Path(lake) / "events"))
    return {f"events/{path}" for path in table.get_add_actions(flatten=True).column("path").to_pylist()}


def files_by_manifest(app: App, lake: str) -> set[str]:
    return {file.path for batch in app.pipeline.manifest.batches(lake) for file in batch.files}


def archived(spark: SparkSession, app: App, lake: str) -> list[Any]:
    events = read_events(spark, app, lake)
    return sorted(rows_of(events.selectExpr("queue", "queue as queue_name", "id")))


def test_the_delta_log_follows_the_archive_through_new_batches_and_a_compaction(
    spark: SparkSession, pipeline_app: App, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    rows: list[Any] = []
    for turn in range(2):
        offered(pipeline_app)
        if turn == 1:  # the batch is complete, the log does not have it yet
            with monkeypatch.context() as patch:
                patch.setattr(delta, "append", killed)
                with pytest.raises(KeyboardInterrupt):
                    archive.run(spark, pipeline_app, ArchiveArgs(lake=lake))
            assert read_by_delta(lake) == rows
        summary = archive.run(spark, pipeline_app, ArchiveArgs(lake=lake))
        assert bool(summary.rows) == (turn == 0)
        rows = read_by_delta(lake)
        assert rows == archived(spark, pipeline_app, lake)
    assert len(rows) == 2 * len(QUEUES) * 5 + len(QUEUES)
    before = files_by_delta(lake)
    compact.run(spark, pipeline_app, CompactArgs(lake=lake, at_least=2))
    assert files_by_delta(lake) == files_by_manifest(pipeline_app, lake)
    assert not before & files_by_delta(lake), "what was merged is not read any more, though it is there for an hour"
    assert read_by_delta(lake) == rows
