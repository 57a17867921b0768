# pyright: basic
"""Few rows are worked on in one piece.

Most runs are small: a laptop's first thousand events, or the last minute of a busy queue. There the exchange of rows between
tasks, the adapting of plans to their sizes and the compiling of every stage cost many times what the work does. A frame that
is one partition needs no exchange at all: grouping, windows and joins follow each other in one task.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import StorageLevel

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

FEW = 200_000
"""One core goes through these in a second or two."""
ON_DISK = StorageLevel.DISK_ONLY
"""Where frames are kept that a job needs more than once. Not in memory, not even in part: of a level that has both, Spark
takes a whole partition back from the disk at once, and for five million events no heap of a laptop has room for that."""
_IN_ONE_PIECE = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    # No stage is compiled, nor any expression: each would take longer than all rows do.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}

Keep = Callable[["DataFrame"], "DataFrame"]


@dataclass(frozen=True, slots=True)
class Layout:
    """How the frames of a job are to lie."""

    in_one_piece: bool

    def read(self, frame: DataFrame) -> DataFrame:
        return frame.coalesce(1) if self.in_one_piece else frame

    def by(self, frame: DataFrame, column: str) -> DataFrame:
        """Rows with the same value together, as few files want them."""
        return frame.coalesce(1) if self.in_one_piece else frame.repartition(column)

    @contextmanager
    def keeping(self) -> Generator[Keep]:
        """Gives what keeps a frame that is needed more than once, until the end.

        In one piece it is worked out at once, and its plan is forgotten with it: whatever is built on it is planned as if
        it had been read. One without rows becomes a frame that is known to have none, and what is joined to it vanishes.
        """
        frames: list[DataFrame] = []

        def keep(frame: DataFrame) -> DataFrame:
            if self.in_one_piece:
                done = frame.localCheckpoint()
                return done.limit(0) if done.isEmpty() else done
            frames.append(frame.persist(ON_DISK))
            return frames[-1]

        try:
            yield keep
        finally:
            for frame in frames:
                frame.unpersist()


def local_frame(spark: SparkSession, rows: Iterable[Sequence[Any]], schema: StructType | str) -> DataFrame:
    """A frame of rows that the driver has. By Arrow: from a plain list Spark would start Python workers to read it again."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    columns: Any = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    told = [dict(zip(columns.names, row, strict=True)) for row in rows]
    return spark.createDataFrame(pa.Table.from_pylist(told, to_arrow_schema(columns, timezone="UTC")), columns)


@contextmanager
def sized_for(spark: SparkSession, rows: int | None) -> Generator[Layout]:
    """Have the session work on so many rows. None: nobody knows."""
    if rows is None or rows > FEW:
        yield Layout(in_one_piece=False)
        return
    before = {name: spark.conf.get(name) for name in _IN_ONE_PIECE}
    try:
        for name, value in _IN_ONE_PIECE.items():
            spark.conf.set(name, value)
        yield Layout(in_one_piece=True)
    finally:
        for name, value in before.items():
            spark.conf.set(name, str(value))
