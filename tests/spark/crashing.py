# pyright: basic
"""Sinks that fail on purpose, for Spark's workers to import."""

from __future__ import annotations

from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from tarry.edges.spark.sink import SinkMessage, TarrySink, TarryStreamSink


def crash_after_work(crashes: int) -> None:
    """Three of four tasks fail, after their own work, as many times as told; one task of them once more."""
    task = TaskContext.get()
    assert task is not None
    part = task.partitionId()
    failures = 0 if part % 4 == 3 else crashes + (1 if part % 4 == 0 and crashes < 4 else 0)
    if task.attemptNumber() < failures:
        raise RuntimeError(f"part {part} crashes at attempt {task.attemptNumber()}")


class CrashingSink(TarrySink):
    crashes = 1

    def write(self, iterator: Any) -> SinkMessage:
        message = super().write(iterator)
        crash_after_work(self.crashes)
        return message


class HopelessSink(CrashingSink):
    crashes = 4


class DyingSink(TarrySink):
    """The driver ends between staging and commit: nobody commits, nobody aborts."""

    def commit(self, messages: Any) -> None: ...


class CrashingStreamSink(TarryStreamSink):
    def write(self, iterator: Any) -> SinkMessage:
        message = super().write(iterator)
        crash_after_work(1)
        return message


class CrashingSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "crashing"

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        return CrashingSink(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802
        return CrashingStreamSink(self.options, schema)


class HopelessSource(CrashingSource):
    @classmethod
    def name(cls) -> str:
        return "hopeless"

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        return HopelessSink(self.options, schema)


class DyingSource(CrashingSource):
    @classmethod
    def name(cls) -> str:
        return "dying"

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        return DyingSink(self.options, schema)


SOURCES = (CrashingSource, HopelessSource, DyingSource)
