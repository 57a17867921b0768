"""The data source `tarry`: events, live messages and dead letters as Spark frames, and frames as offers."""

# pyright: basic
# ruff: noqa: N802 - the names of methods are Spark's
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.types import StructType

from tarry.core.errors import TarryError
from tarry.core.journal.snapshots import ColumnCondition
from tarry.edges.spark.source.options import SourceOptions, condition, parse
from tarry.pipeline import pipeline_on

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"

F = TypeVar("F", bound=Callable[..., Any])


def register(spark: SparkSession) -> None:
    """Register `format("tarry")` in a session and enable filter push-down to the database."""
    spark.conf.set(PUSHDOWN, "true")
    spark.dataSource.register(TarryDataSource)


def with_hint(method: F) -> F:
    """Add the hint of an error to its text: Spark shows only the text."""

    @functools.wraps(method)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except TarryError as error:
            if error.hint is None:
                raise
            raise RuntimeError(str(error)) from error

    return wrapped  # pyright: ignore[reportReturnType]


class TarryDataSource(DataSource):
    pushdown_by_default = True
    """Spark rejects a reader with filter push-down unless the session allows it; `register` allows it."""

    @classmethod
    def name(cls) -> str:
        return "tarry"

    @with_hint
    def schema(self) -> StructType:
        return parse(self.options).schema

    @with_hint
    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse(self.options, schema)
        pushes = self.pushdown_by_default if options.pushdown is None else options.pushdown
        return FilteringReader(options) if pushes else TableReader(options)

    @with_hint
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from tarry.edges.spark.source.stream import JournalStream

        return JournalStream(parse(self.options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> Any:  # noqa: FBT001 - Spark's signature
        from tarry.edges.spark.sink.writer import TarrySink

        return TarrySink(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: FBT001
        from tarry.edges.spark.sink.writer import TarryStreamSink

        return TarryStreamSink(self.options, schema, overwrite)


class TableReader(DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        self.options, self.scan = options, options.scan

    @with_hint
    def partitions(self) -> Sequence[InputPartition]:
        windows, options = pipeline_on(self.options.dsn).windows, self.options
        slices = windows.slices(self.scan, options.window, partitions=options.partitions)
        return [InputPartition(piece) for piece in slices]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_slice(self.options.dsn, partition)


class FilteringReader(TableReader):
    """A reader that pushes filters down to the database if the database can evaluate them."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        left: list[Filter] = []
        pushed: list[ColumnCondition] = []
        windows = pipeline_on(self.options.dsn).windows
        for filter in filters:
            pushable = condition(filter)
            if pushable is not None and windows.can_apply(self.scan.table, pushable):
                pushed.append(pushable)
            else:
                left.append(filter)
        self.scan = replace(self.scan, conditions=tuple(pushed))
        return left


def read_slice(dsn: str, partition: InputPartition) -> Iterator[Any]:
    # Without any slice Spark creates one empty partition.
    if partition.value is not None:
        yield from pipeline_on(dsn).windows.batches(partition.value)
