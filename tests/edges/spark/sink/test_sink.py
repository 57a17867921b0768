# pyright: basic
"""`df.write.format("tarry")` and `writeStream`: the user interface, and writes whose tasks and drivers fail."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tarry.app import App
from tarry.core.analytics.bulk_offer import SinkWrite, WriteState
from tarry.edges.spark.sink import writer as sink
from tarry.edges.spark.source.reader import register
from tests.edges.spark.crashing import FaultySource
from tests.edges.spark.sink.sink_kit import allow, counts, live_keys, number, refuse, run_sql, sink_of, staged_rows
from tests.kit.sleepers import until
from tests.kit.steps import seen

AT = datetime(2030, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
ATTEMPTS = "select last_value from tarry.sink_attempt_id_seq"


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    register(spark)
    spark.dataSource.register(FaultySource)
    return spark


def numbered(session: SparkSession, n: int, parts: int = 8) -> DataFrame:
    """Keys k0 … and their number as payload."""
    return session.range(0, n, 1, parts).select(
        F.concat(F.lit("k"), F.col("id")).alias("key"), F.struct(F.col("id").alias("n")).alias("payload")
    )


def write(frame: DataFrame, dsn: str, **options: str) -> SinkWrite | None:
    source = "faulty" if "fault" in options else "tarry"
    settings = {"dsn": dsn, "queue": "q", "write_id": "w", **options}
    frame.write.format(source).options(**settings).mode("append").save()
    return sink.outcome(dsn, settings["write_id"])


class TestWriting:
    def test_every_column_arrives(self, session: SparkSession, database: str, pipeline_app: App) -> None:
        columns = (
            "queue string, key string, payload struct<n:int>, due_at timestamp, priority int, type string, "
            "headers map<string,string>, max_attempts int"
        )
        frame = session.createDataFrame([("orders", "a", (1,), AT, 3, "t", {"h": "v"}, 5)], columns)
        assert counts(sink.offer(frame, database)) == (1, 0, 0, 0)
        message = seen(pipeline_app.queue("orders"), "a")
        assert (message.payload, message.due_at, message.priority, message.type) == ({"n": 1}, AT, 3, "t")
        assert (message.headers, message.max_attempts) == ({"h": "v"}, 5)

    def test_a_write_reports_what_was_offered(self, session: SparkSession, database: str) -> None:
        assert counts(sink.offer(numbered(session, 10), database, queue="q")) == (10, 0, 0, 0)
        frame = numbered(session, 20).unionAll(numbered(session, 5)).withColumn("after_s", F.lit(60))
        assert counts(sink.offer(frame, database, queue="q", conflict="keep")) == (10, 0, 15, 0)

    def test_rows_without_keys_are_all_new(self, session: SparkSession, database: str) -> None:
        frame = numbered(session, 50).select("payload")
        assert counts(sink.offer(frame, database, queue="q")) == (50, 0, 0, 0)
        assert len(set(live_keys(database))) == 50

    def test_messages_are_delivered_in_the_order_of_the_frame(
        self, session: SparkSession, database: str, pipeline_app: App
    ) -> None:
        frame = numbered(session, 30, 3).orderBy(F.desc("payload.n"))
        sink.offer(frame, database, queue="q")
        polled = [delivery.payload["n"] for delivery in pipeline_app.queue("q").try_poll_many(30)]
        assert polled == list(range(29, -1, -1))

    def test_an_empty_frame_is_a_write_too(self, session: SparkSession, database: str) -> None:
        assert counts(sink.offer(numbered(session, 10).where("false"), database, queue="q")) == (0, 0, 0, 0)

    def test_the_same_write_again_does_nothing(self, session: SparkSession, database: str) -> None:
        first = write(numbered(session, 10), database)
        assert write(numbered(session, 99), database) == first
        assert len(live_keys(database)) == 10
        assert sink.outcome(database, "never") is None

    @pytest.mark.parametrize("mode", ["overwrite", "ignore", "error"])
    def test_messages_are_appended_and_nothing_else(self, session: SparkSession, database: str, mode: str) -> None:
        with pytest.raises(PySparkException):
            numbered(session, 1).write.format("tarry").option("dsn", database).option("queue", "q").mode(mode).save()
        assert live_keys(database) == []

    def test_one_bad_row_refuses_them_all_and_the_error_counts_and_shows_them(
        self, session: SparkSession, database: str
    ) -> None:
        frame = numbered(session, 1000).withColumn("priority", F.when(F.col("payload.n") % 250 == 7, 10))
        with pytest.raises(PySparkException) as caught:
            write(frame, database)
        assert "4 rows of write 'w' cannot be offered, and nothing was stored: row 7 of partition 0" in str(
            caught.value
        )
        assert "priority is a whole number from 0 (last) to 9 (first), not 10" in str(caught.value)
        assert live_keys(database) == []
        assert staged_rows(database) == (0, 0)
        outcome = sink.outcome(database, "w")
        assert outcome is not None
        assert outcome.state is WriteState.ABORTED

    def test_a_database_that_is_not_there_is_noticed_before_any_work(self, session: SparkSession) -> None:
        with pytest.raises(PySparkException, match="the database cannot be reached"):
            write(numbered(session, 1), "host=/nowhere dbname=none")


class TestFailingTasks:
    @pytest.mark.parametrize("commit", ["write", "task"])
    def test_tasks_that_crash_after_their_work_double_and_lose_nothing(
        self, session: SparkSession, database: str, commit: str
    ) -> None:
        # Keys from the dice: another try of a task gives other keys, and must not leave the first ones.
        frame = numbered(session, 400, 4).unionAll(numbered(session, 400, 4).withColumn("key", F.expr("uuid()")))
        done = write(frame, database, fault="crash", commit=commit)
        assert done is not None
        assert counts(done) == (800, 0, 0, 0)
        payloads = [json.loads(payload)["n"] for (payload,) in run_sql(database, "select payload from tarry.message")]
        assert sorted(payloads) == sorted([*range(400)] * 2)
        assert number(database, "select count(*) from tarry.event where kind = 'offered'") == 800
        assert staged_rows(database) == (0, 0)
        # 8 tasks, of which 6 failed once and 2 of those twice.
        assert number(database, ATTEMPTS) == 16

    def test_a_task_that_fails_for_good_fails_the_write_and_leaves_nothing(
        self, session: SparkSession, database: str
    ) -> None:
        with pytest.raises(PySparkException):
            write(numbered(session, 40, 2), database, fault="hopeless")
        assert live_keys(database) == []

        def swept() -> bool:
            """A task that was still running may stage after the abort. That is not merged, and it is swept in time."""
            sink_of(database).sweep(timedelta(0))
            return staged_rows(database) == (0, 0)

        until(swept, "something stays staged")
        assert counts(write(numbered(session, 40, 4), database) or pytest.fail("no outcome")) == (40, 0, 0, 0)

    def test_a_driver_that_dies_before_the_commit_is_followed_by_one_that_commits(
        self, session: SparkSession, database: str
    ) -> None:
        write(numbered(session, 40), database, fault="die")
        assert live_keys(database) == []
        assert staged_rows(database)[0] == 40
        assert counts(write(numbered(session, 40), database) or pytest.fail("no outcome")) == (40, 0, 0, 0)
        assert staged_rows(database) == (0, 0)


class TestTaskByTask:
    def test_each_task_of_a_frame_with_two_queues_is_a_transaction(self, session: SparkSession, database: str) -> None:
        queue = F.when(F.col("payload.n") % 2 == 0, "even").otherwise("odd").alias("queue")
        done = sink.offer(numbered(session, 100, 5).select("*", queue), database, commit="task")
        assert counts(done) == (100, 0, 0, 0)
        per_queue = (
            "select q.name, count(*) from tarry.message m join tarry.queue q on q.id = m.queue group by 1 order by 1"
        )
        assert run_sql(database, per_queue) == [("even", 50), ("odd", 50)]
        assert number(database, "select count(distinct xid) from tarry.event where kind = 'offered'") == 5

    def test_one_bad_row_still_refuses_them_all(self, session: SparkSession, database: str) -> None:
        frame = numbered(session, 100).withColumn("priority", F.when(F.col("payload.n") == 7, 10))
        with pytest.raises(PySparkException, match="1 row of write 'w' cannot be offered, and nothing was stored"):
            write(frame, database, commit="task")
        assert live_keys(database) == []

    def test_a_failed_task_leaves_the_others_and_a_repetition_stores_it(
        self, session: SparkSession, database: str
    ) -> None:
        refuse(database, "k39")  # of the last task, so that all others have begun
        with pytest.raises(PySparkException, match="at least 3 of 4 tasks are stored, with 30 of 40 rows"):
            write(numbered(session, 40, 4), database, commit="task")
        allow(database)
        assert len(live_keys(database)) == 30
        run_sql(database, "delete from tarry.message")  # consumed
        with pytest.raises(PySparkException, match="other rows now, as task 0; nothing more was stored"):
            write(numbered(session, 40, 5), database, commit="task")
        assert live_keys(database) == []
        done = write(numbered(session, 40, 4), database, commit="task")
        assert done is not None
        assert counts(done) == (40, 0, 0, 0)
        assert sorted(live_keys(database)) == [f"k{n}" for n in range(30, 40)]

    def test_a_unit_that_does_not_exist_is_refused_before_any_work(self, session: SparkSession, database: str) -> None:
        with pytest.raises(PySparkException, match="commit is one of write, task, not 'partition'"):
            write(numbered(session, 1), database, commit="partition")


class TestStreams:
    def run(
        self, session: SparkSession, dsn: str, directory: Path, *, source: str = "tarry", commit: str = "write"
    ) -> None:
        lines = session.readStream.format("text").load(str(directory / "in"))
        frame = lines.select(F.col("value").alias("key"), F.col("value").alias("payload")).repartition(3, "key")
        query = (
            frame.writeStream.format(source)
            .option("dsn", dsn)
            .option("queue", "q")
            .option("commit", commit)
            .option("checkpointLocation", str(directory / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(60)

    def give(self, directory: Path, *keys: str) -> None:
        (directory / "in").mkdir(exist_ok=True)
        (directory / "in" / f"{keys[0]}.txt").write_text("\n".join(keys))

    def forget_last_batch(self, directory: Path) -> None:
        """What a driver leaves that was killed after the sink's commit and before its own note of it."""
        commits = sorted((directory / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        for path in (commits[-1], commits[-1].with_name(f".{commits[-1].name}.crc")):
            path.unlink(missing_ok=True)

    def test_batches_are_offered_once_each_also_when_they_are_replayed(
        self, session: SparkSession, database: str, tmp_path: Path
    ) -> None:
        self.give(tmp_path, "a", "b")
        self.run(session, database, tmp_path)
        assert live_keys(database) == ["a", "b"]
        run_sql(database, "truncate tarry.message")  # consumed; offered again they would be new
        self.forget_last_batch(tmp_path)
        self.run(session, database, tmp_path)
        assert live_keys(database) == []
        self.give(tmp_path, "c")
        self.run(session, database, tmp_path)
        assert live_keys(database) == ["c"]
        writes: list[Any] = run_sql(database, "select stream, batch, created from tarry.sink_write order by batch")
        assert [(batch, created) for _, batch, created in writes] == [(0, 2), (1, 1)]
        query = json.loads((tmp_path / "checkpoint" / "metadata").read_text())["id"]
        assert {stream for stream, _, _ in writes} == {query}

    def test_a_batch_of_which_some_tasks_were_stored_is_completed_when_it_is_replayed(
        self, session: SparkSession, database: str, tmp_path: Path
    ) -> None:
        keys = [f"k{n}" for n in range(30)]
        self.give(tmp_path, *keys)
        refuse(database, "k7")
        with pytest.raises(PySparkException, match="of 3 tasks are stored"):
            self.run(session, database, tmp_path, commit="task")
        allow(database)
        stored = live_keys(database)
        run_sql(database, "delete from tarry.message")  # consumed
        self.run(session, database, tmp_path, commit="task")
        assert sorted([*live_keys(database), *stored]) == sorted(keys)
        self.forget_last_batch(tmp_path)
        self.run(session, database, tmp_path, commit="task")
        assert number(database, "select count(*) from tarry.event where kind in ('offered', 'updated')") == 30
        assert staged_rows(database) == (0, 0)

    def test_a_new_query_is_another_write(self, session: SparkSession, database: str, tmp_path: Path) -> None:
        self.give(tmp_path, "a")
        self.run(session, database, tmp_path)
        run_sql(database, "truncate tarry.message")
        shutil.rmtree(tmp_path / "checkpoint")
        self.run(session, database, tmp_path)
        assert live_keys(database) == ["a"]

    def test_tasks_of_a_stream_may_crash_too(self, session: SparkSession, database: str, tmp_path: Path) -> None:
        self.give(tmp_path, "a", "b")
        self.give(tmp_path, "c")
        self.run(session, database, tmp_path, source="faulty")
        assert live_keys(database) == ["a", "b", "c"]
        assert number(database, "select count(*) from tarry.event where kind = 'offered'") == 3
        assert staged_rows(database) == (0, 0)


def test_a_delay_counts_from_the_merge_on(session: SparkSession, database: str) -> None:
    frame = numbered(session, 3).withColumn("after_s", F.lit(1.5))
    write(frame, database)
    assert run_sql(database, "select distinct due_at - created_at from tarry.message") == [(timedelta(seconds=1.5),)]
