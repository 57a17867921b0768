# pyright: basic
"""`df.write.format("tarry")`: bulk offers. Tasks stage rows, the driver merges once; nothing is duplicated or lost."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from pyarrow import RecordBatch
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tarry.core.analytics.bulk_offer import InvalidRows, SinkWrite, Staged, Write
from tarry.core.errors import InvalidInput, TarryError
from tarry.edges.spark.sink.options import SinkOptions
from tarry.edges.spark.sink.rows import RowReader
from tarry.edges.spark.source.reader import with_hint
from tarry.pipeline import pipeline_on

log = logging.getLogger("tarry.spark")

# Set by Spark for every task of a streaming query; the checkpoint keeps the id across restarts.
_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"


@dataclass(frozen=True)
class SinkMessage(WriterCommitMessage):
    """The commit message of a task to the driver."""

    staged: Staged | None
    invalid: InvalidRows
    run: UUID
    stream: str | None = None


class _Stager:
    """Staging and merging, shared by both sinks."""

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise InvalidInput('messages are offered, never overwritten: mode("append")')
        self.options = SinkOptions.parse(options)
        self._reader = RowReader(schema, self.options)

    def stage(self, write: Write, part: int, batches: Iterator[RecordBatch]) -> tuple[Staged | None, InvalidRows]:
        """Stage the rows of one task. After a bad row the rest is still checked, to count the bad rows."""
        invalid = InvalidRows()
        seen = 0
        with pipeline_on(self.options.dsn).sink.attempt(write, part) as staging:
            for batch in batches:
                rows, bad = self._reader.read(batch, part, seen)
                seen += batch.num_rows
                invalid += bad
                if batch.num_rows and not invalid:
                    staging.add(rows)
            return staging.staged(), invalid

    def merge(self, write: Write, messages: Sequence[SinkMessage]) -> SinkWrite:
        if invalid := sum((each.invalid for each in messages), InvalidRows()):
            raise invalid.error(write.write_id)
        staged = [each.staged for each in messages if each.staged is not None]
        done = pipeline_on(self.options.dsn).sink.commit(write, staged, self.options.rules)
        log.info("%s", done.line())
        return done

    def forget(self, write: Write) -> None:
        pipeline_on(self.options.dsn).sink.abort(write)


class TarrySink(DataSourceArrowWriter):
    """One write of one data frame. Created where the write is planned; serialized copies stage and commit it."""

    @with_hint
    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool = False) -> None:  # noqa: FBT001, FBT002
        self._stager = _Stager(options, schema, overwrite=overwrite)
        self._write = Write(write_id=self._stager.options.write_id or f"spark/{uuid4()}", run=uuid4())
        # Before any work, so an unavailable or unmigrated database fails early.
        pipeline_on(self._stager.options.dsn).sink.begin(self._write)

    @with_hint
    def write(self, iterator: Iterator[RecordBatch]) -> SinkMessage:
        return SinkMessage(*self._stager.stage(self._write, _task().partitionId(), iterator), self._write.run)

    @with_hint
    def commit(self, messages: Sequence[Any]) -> None:
        self._stager.merge(self._write, _written(messages))

    def abort(self, messages: Sequence[Any]) -> None:
        self._stager.forget(self._write)


class TarryStreamSink(DataSourceStreamArrowWriter):
    """The batches of a streaming query. Its write id makes a batch replayed after a restart a no-op."""

    @with_hint
    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool = False) -> None:  # noqa: FBT001, FBT002
        self._stager = _Stager(options, schema, overwrite=overwrite)
        self._run = uuid4()

    @with_hint
    def write(self, iterator: Iterator[RecordBatch]) -> SinkMessage:
        task = _task()
        stream = self._stager.options.write_id or task.getLocalProperty(_QUERY)
        batch = task.getLocalProperty(_BATCH)
        if stream is None or batch is None:
            raise TarryError("Spark does not provide the id of this streaming query", hint="set the option write_id")
        write = _batch_of(stream, int(batch), self._run)
        return SinkMessage(*self._stager.stage(write, task.partitionId(), iterator), self._run, stream)

    @with_hint
    def commit(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        written = _written(messages)
        if any(each.staged or each.invalid for each in written):
            self._stager.merge(_batch_of(str(written[0].stream), batchId, written[0].run), written)

    def abort(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        for stream, run in {(each.stream, each.run) for each in _written(messages)}:
            self._stager.forget(_batch_of(str(stream), batchId, run))


def offer(df: DataFrame, dsn: str, **options: Any) -> SinkWrite:
    """Write a frame and return the outcome. The options are those of the sink."""
    texts = {name: str(value) for name, value in options.items() if value is not None}
    write_id = texts.setdefault("write_id", f"spark/{uuid4()}")
    df.write.format("tarry").option("dsn", dsn).options(**texts).mode("append").save()
    done = outcome(dsn, write_id)
    if done is None:
        raise TarryError(f"write {write_id!r} has left no trace")
    return done


def outcome(dsn: str, write_id: str) -> SinkWrite | None:
    """The outcome of a write; None if the write id is unknown."""
    return pipeline_on(dsn).sink.outcome(write_id)


def _batch_of(stream: str, batch: int, run: UUID) -> Write:
    return Write(write_id=f"{stream}/{batch}", run=run, stream=stream, batch=batch)


def _task() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise TarryError("rows can only be staged in a Spark task")
    return context


def _written(messages: Sequence[Any]) -> list[SinkMessage]:
    return [each for each in messages if each is not None]
