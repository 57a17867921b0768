"""The journal as a stream: exactly what was committed, in batches no larger than requested, across restarts."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.datasource import ReadAllAvailable

import tarry
from tarry.app import App
from tarry.core.errors import InvalidInput
from tarry.edges.spark.source.options import parse
from tarry.edges.spark.source.reader import register
from tarry.edges.spark.source.stream import JournalStream
from tarry.storage.postgres.analytics import database
from tarry.storage.postgres.connections import opened
from tests.kit.spark import write_events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Follower:
    """Reads the stream as far as it goes, again and again, each time as a new query on the same checkpoint."""

    def __init__(self, spark: SparkSession, dsn: str, directory: Path) -> None:
        register(spark)
        self._spark = spark
        self._dsn = dsn
        self.checkpoint = directory / "checkpoint"
        self.batches: list[list[int]] = []

    def tail(self, *, stop_after: int | None = None, **options: Any) -> list[list[int]]:
        """The batches of this turn. `stop_after`: break in the middle of a batch, as a crash would."""
        before = len(self.batches)

        def keep(frame: DataFrame, number: int) -> None:
            ids = [row[0] for row in frame.collect()]
            if stop_after is not None and len(self.batches) - before >= stop_after:
                raise RuntimeError("the lights went out")
            self.batches.append(ids)

        stream = self._spark.readStream.format("tarry").options(dsn=self._dsn, columns="id", **options).load()
        query = stream.writeStream.option("checkpointLocation", str(self.checkpoint)).foreachBatch(keep)
        query.trigger(availableNow=True).start().awaitTermination()
        return self.batches[before:]

    @property
    def seen(self) -> list[int]:
        return sorted(i for batch in self.batches for i in batch)


@pytest.fixture
def follower(spark: SparkSession, pipeline_app: App, tmp_path: Path) -> Follower:
    assert pipeline_app.dsn is not None
    return Follower(spark, pipeline_app.dsn, tmp_path)


def committed(app: App) -> list[int]:
    assert app.dsn is not None
    with psycopg.connect(app.dsn) as conn:
        return sorted(row[0] for row in conn.execute("select id from tarry.event").fetchall())


def test_transactions_held_open_across_batches_are_neither_missed_nor_doubled(
    pipeline_app: App, follower: Follower
) -> None:
    queue = pipeline_app.queue("q")
    queue.offer("a", 1)
    assert pipeline_app.dsn is not None
    with psycopg.connect(pipeline_app.dsn) as late, psycopg.connect(pipeline_app.dsn) as never:
        write_events(late, 5)
        write_events(never, 5)
        queue.offer("b", 1)
        (first,) = follower.tail()
        assert follower.tail() == [], "nothing new is no batch"
        late.commit()
        never.rollback()
    queue.offer("c", 1)
    (second,) = follower.tail()
    assert follower.seen == committed(pipeline_app)
    assert len([i for i in second if i < max(first)]) == 5, "`id > last` would have missed these"


def test_batches_are_no_larger_than_requested_and_survive_a_crash(pipeline_app: App, follower: Follower) -> None:
    pipeline_app.queue("q").offer_many([tarry.Message(payload=i) for i in range(49)])
    with pytest.raises(StreamingQueryException, match="the lights went out"):
        follower.tail(maxRowsPerBatch=20, stop_after=1)
    pipeline_app.queue("q").offer_many([tarry.Message(payload=i) for i in range(10)])
    follower.tail(maxRowsPerBatch=20)
    assert [len(batch) for batch in follower.batches] == [20, 20, 10, 10]
    assert follower.seen == committed(pipeline_app)


def test_a_stream_may_begin_with_what_comes_next(pipeline_app: App) -> None:
    stream = JournalStream(parse({"dsn": pipeline_app.dsn or "", "start": "latest", "columns": "key"}))
    pipeline_app.queue("q").offer("a", 1)
    start = stream.initialOffset()
    assert stream.latestOffset(start, ReadAllAvailable()) == start
    pipeline_app.queue("q").offer("b", 1)
    end = stream.latestOffset(start, ReadAllAvailable())
    read = [row for piece in stream.partitions(start, end) for batch in stream.read(piece) for row in batch.to_pylist()]
    assert read == [{"key": "b"}]
    assert stream.reportLatestOffset()["system_id"] == end["system_id"]


def test_an_idle_stream_keeps_one_connection_and_survives_its_loss(
    pipeline_app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    dsn, pids = pipeline_app.dsn or "", list[int]()

    def counted(dsn: str) -> Any:
        pids.append((conn := opened(dsn)).info.backend_pid)
        return conn

    monkeypatch.setattr(database, "opened", counted)
    stream = JournalStream(parse({"dsn": dsn, "start": "latest"}))
    start = stream.initialOffset()
    for _ in range(3):
        assert stream.latestOffset(start, ReadAllAvailable()) == start
        assert stream.reportLatestOffset()
    assert len(pids) == 1
    copy = pickle.loads(pickle.dumps(stream))
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("select pg_terminate_backend(%s)", (pids[0],))
    pipeline_app.queue("q").offer("a", 1)
    end = stream.latestOffset(start, ReadAllAvailable())
    assert len(pids) == 2
    rows = [row for piece in stream.partitions(start, end) for batch in copy.read(piece) for row in batch.to_pylist()]
    assert [row["key"] for row in rows if row["kind"] == "offered"] == ["a"]
    stream.stop()
    with psycopg.connect(dsn, autocommit=True) as conn:
        while conn.execute("select from pg_stat_activity where pid = any(%s)", (pids[:2],)).fetchone() is not None:
            pass  # a server process ends a moment after its client; one that stays is a time-out of this test


def test_a_checkpoint_of_another_cluster_is_refused_unless_a_new_start_is_configured(
    pipeline_app: App, follower: Follower
) -> None:
    pipeline_app.queue("q").offer("a", 1)
    follower.tail()
    (offsets,) = [path for path in (follower.checkpoint / "offsets").iterdir() if path.name == "0"]
    *head, offset = offsets.read_text().splitlines()
    offsets.write_text("\n".join([*head, json.dumps({**json.loads(offset), "system_id": "4711"})]))
    for crc in (follower.checkpoint / "offsets").glob(".*.crc"):
        crc.unlink()
    pipeline_app.queue("q").offer("b", 1)
    with pytest.raises(StreamingQueryException, match="belongs to the database cluster 4711"):
        follower.tail()
    (again,) = follower.tail(startAnew="true")
    assert sorted(again) == committed(pipeline_app)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"table": "messages"}, "only events can be read as a stream"),
        ({"since": "2026-01-01T00:00:00Z"}, "since and until are for spark.read"),
        ({"start": "yesterday"}, "option start is earliest or latest"),
        ({"maxRowsPerBatch": "-1"}, "option maxRowsPerBatch is a whole number above 0"),
        ({"startAnew": "yes"}, "option startAnew is true or false"),
    ],
)
def test_an_unsupported_option_of_a_stream_is_rejected_with_one_sentence(options: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        JournalStream(parse({"dsn": "dbname=x", **options}))
