# pyright: basic
"""Execution of small inputs as one partition.

Most runs are small: the first thousand events on a laptop, or the last minute of a busy queue. For these, shuffles,
adaptive planning and code generation cost many times the actual work. A single partition needs no shuffle: grouping,
windows and joins run in one task.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

FEW = 200_000
"""One core processes this many rows in one or two seconds."""
ON_DISK = StorageLevel.DISK_ONLY
"""Storage level of frames that a job uses more than once. Disk only: with a mixed level Spark loads a whole partition
back from disk at once, and for five million events that exceeds the heap of a laptop.
"""
_IN_ONE_PIECE = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    # No code generation: compiling a stage or an expression takes longer than processing all rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # No conditions inferred from others: finding them is a tenth of planning, and they save work on large inputs only.
    "spark.sql.constraintPropagation.enabled": "false",
}

Keep = Callable[["DataFrame"], "DataFrame"]


@dataclass(frozen=True, slots=True)
class FrameLayout:
    """How a job partitions its frames."""

    in_one_piece: bool = False

    def read(self, frame: DataFrame) -> DataFrame:
        return frame.coalesce(1) if self.in_one_piece else frame

    def by(self, frame: DataFrame, *columns: str) -> DataFrame:
        """Rows with the same values in one partition, for few output files."""
        return frame.coalesce(1) if self.in_one_piece else frame.repartition(*columns)

    @contextmanager
    def keeping(self) -> Generator[Keep]:
        """Yield a function that caches a frame that is used more than once, until the context ends.

        As one partition the frame is computed immediately and its plan is cut: later frames are planned as if it had been
        read from a table. A frame without rows becomes an empty relation, so Spark eliminates joins with it.
        """
        frames: list[DataFrame] = []
        # Spark Connect drops a checkpoint on the server when its frame is garbage-collected here.
        checkpoints: list[DataFrame] = []

        def keep(frame: DataFrame) -> DataFrame:
            if self.in_one_piece:
                done = frame.localCheckpoint()
                checkpoints.append(done)
                return done.limit(0) if done.isEmpty() else done
            frames.append(frame.persist(ON_DISK))
            return frames[-1]

        try:
            yield keep
        finally:
            for frame in frames:
                frame.unpersist()


def local_frame(spark: SparkSession, rows: Iterable[Sequence[Any]], schema: StructType | str) -> DataFrame:
    """A frame of rows on the driver, through Arrow: for a plain list Spark would start Python workers."""
    columns: Any = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    records = [dict(zip(columns.names, row, strict=True)) for row in rows]
    return spark.createDataFrame(pa.Table.from_pylist(records, to_arrow_schema(columns, timezone="UTC")), columns)


@contextmanager
def sized_for(spark: SparkSession, rows: int | None) -> Generator[FrameLayout]:
    """Configure the session for this many rows. None: unknown."""
    if rows is None or rows > FEW:
        yield FrameLayout()
        return
    before = {name: spark.conf.get(name) for name in _IN_ONE_PIECE}
    try:
        for name, value in _IN_ONE_PIECE.items():
            spark.conf.set(name, value)
        yield FrameLayout(in_one_piece=True)
    finally:
        for name, value in before.items():
            spark.conf.set(name, str(value))
