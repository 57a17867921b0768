"""The lake: Parquet files by batch, date and queue. Its content is what the manifest lists, not what the directory
contains.
"""

# pyright: basic
from __future__ import annotations

import os
import shutil
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructField, StructType

from tarry.app import default_lake
from tarry.core.errors import InvalidInput
from tarry.core.pipeline import Batch, LakeFile, Manifest, by_day, readable_files
from tarry.core.windows import Digest
from tarry.edges.spark.schemas import EVENTS
from tarry.edges.spark.sizing import local_frame

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

# The directory `queue=…` serves people and tools that read only some queues. The name is also a column of the file: a
# directory name cannot distinguish "7" from 7, nor `A` from `a` on case-insensitive file systems.
FILE = StructType([StructField("queue_name" if f.name == "queue" else f.name, f.dataType) for f in EVENTS.fields])
PIECE = "path string, queue_id int, queue string, rows long, checksum long, min_at long, max_at long, bytes long"
_DAY_US = 86_400_000_000
_PATTERN = frozenset("*?[]{}\\")


@dataclass(frozen=True, slots=True)
class Lake:
    """A location that Spark can write to: a local directory or a URI."""

    root: str

    @classmethod
    def at(cls, root: str | None = None) -> Lake:
        """The lake at `root`; None: the default, beside the embedded data."""
        given = str(default_lake()) if root is None else root.strip()
        if not given:
            raise InvalidInput("the lake needs a place: a directory, or a URI that Spark can write to")
        if found := sorted(_PATTERN & set(given)):
            raise InvalidInput(
                f"the lake is at {given}, and Spark would read {' '.join(found)} as a pattern of many places",
                hint="choose a place without any of " + " ".join(sorted(_PATTERN)),
            )
        given = given.removeprefix("file://") if given.startswith("file:///") else given
        if "://" not in given:
            given = str(Path(given.removeprefix("file:")).expanduser().absolute())
        return cls(given.rstrip("/") or "/")

    @property
    def path(self) -> Path | None:
        """The local directory, or None for a URI."""
        return None if "://" in self.root else Path(self.root)

    def uri(self, relative: str = "") -> str:
        # With an explicit scheme: the default file system of a cluster may be another.
        start = f"file:{self.root}" if self.path is not None else self.root
        return f"{start}/{relative}" if relative else start

    def synced(self, relative: str) -> None:
        """Fsync a directory and everything in it. Object stores are durable without it."""
        if self.path is not None:
            top = self.path / relative
            for folder, _, names in os.walk(top):
                for name in names:
                    _fsync(Path(folder, name))
                _fsync(Path(folder))
            for parent in (top.parent, top.parent.parent):
                _fsync(parent)

    def has(self, spark: SparkSession, relative: str) -> bool:
        if self.path is not None:
            return (self.path / relative).exists()
        system, where = self._hadoop(spark, relative)
        return bool(system.exists(where))

    def remove(self, spark: SparkSession, relative: str) -> None:
        """Delete a file or a directory, if it exists."""
        if not relative:
            raise InvalidInput("the lake itself is never deleted")
        if self.path is not None:
            target = self.path / relative
            shutil.rmtree(target, ignore_errors=True) if target.is_dir() else target.unlink(missing_ok=True)
            return
        system, where = self._hadoop(spark, relative)
        system.delete(where, True)

    def sweep(self, spark: SparkSession, known: Collection[str]) -> int:
        """Delete directories of unknown batches: written by executors that outlived their run."""
        found = self._directories(spark)
        strays = [name for name in found if name.startswith("batch=") and f"events/{name}" not in known]
        for name in strays:
            self.remove(spark, f"events/{name}")
        return len(strays)

    def sweep_files(self, spark: SparkSession, batches: Iterable[Batch]) -> int:
        """Delete files that their batch does not name: expired by retention, or written late by an executor.

        If a named file is missing, the directory was changed from outside: nothing is deleted, and `verify` reports it.
        """
        swept = 0
        for batch in batches:
            named = {file.path for file in batch.files}
            found = {path: _data_file(path) for path in self._files(spark, batch.directory)}
            if named <= found.keys():
                strays = [path for path, of in found.items() if of is not None and of not in named]
                for path in strays:
                    self.remove(spark, path)
                swept += sum(found[path] == path for path in strays)
        return swept

    def _files(self, spark: SparkSession, directory: str) -> list[str]:
        if self.path is not None:
            top = self.path / directory
            return [found.relative_to(self.path).as_posix() for found in top.rglob("*") if found.is_file()]
        system, where = self._hadoop(spark, directory)
        found, paths = system.listFiles(where, True) if system.exists(where) else None, []
        while found is not None and found.hasNext():
            paths.append(f"{directory}/{str(found.next().getPath()).split(f'/{directory}/', 1)[1]}")
        return paths

    def _directories(self, spark: SparkSession) -> list[str]:
        if self.path is not None:
            events = self.path / "events"
            return [folder.name for folder in events.iterdir()] if events.is_dir() else []
        system, where = self._hadoop(spark, "events")
        return [str(status.getPath().getName()) for status in system.listStatus(where)] if system.exists(where) else []

    def _hadoop(self, spark: SparkSession, relative: str) -> tuple[Any, Any]:
        """File system and path through Hadoop, for lakes that are not local."""
        context: Any = spark.sparkContext
        where = context._jvm.org.apache.hadoop.fs.Path(self.uri(relative))
        return where.getFileSystem(context._jsc.hadoopConfiguration()), where


def _data_file(path: str) -> str | None:
    """The Parquet file that this path is, or is the checksum of; None if neither."""
    folder, _, name = path.rpartition("/")
    data = name.removeprefix(".").removesuffix(".crc") if name.startswith(".") else name
    return f"{folder}/{data}" if data.endswith(".parquet") else None


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_events(
    spark: SparkSession,
    manifest: Manifest,
    lake: Lake | str | None = None,
    *,
    since: date | None = None,
    until: date | None = None,
    queues: Sequence[str] | None = None,
) -> DataFrame:
    """The archived events of these days (both included, UTC) and queues, with the columns of `EVENTS`."""
    place = lake if isinstance(lake, Lake) else Lake.at(lake)
    files = readable_files(manifest.batches(place.root), since=since, until=until, queues=queues)
    return read_files(spark, place, [file.path for file in files])


def read_files(spark: SparkSession, lake: Lake, paths: Sequence[str], *, lenient: bool = False) -> DataFrame:
    """The events in these files. `lenient`: read the readable part of corrupt files."""
    if not paths:
        return local_frame(spark, [], EVENTS)
    reader = spark.read.schema(FILE).option("ignoreCorruptFiles", str(lenient).lower())
    frame = reader.parquet(*(lake.uri(path) for path in paths))
    return frame.withColumnRenamed("queue_name", "queue").select(*EVENTS.names)


def write_batch(frame: DataFrame, lake: Lake, batch: Batch) -> None:
    """Write to the directory of the batch, by date and queue. Batch numbers are used once: the directory is new."""
    laid_out = frame.withColumn("date", day_of(F.col("at"))).withColumn("queue_name", F.col("queue"))
    laid_out.write.partitionBy("date", "queue").option("compression", "zstd").mode("overwrite").parquet(
        lake.uri(batch.directory)
    )
    lake.synced(batch.directory)


def merged(spark: SparkSession, lake: Lake, files: Sequence[LakeFile]) -> DataFrame:
    """The rows of many files, grouped by day and queue, sorted by key."""
    frame = read_files(spark, lake, [file.path for file in files]).withColumn("date", day_of(F.col("at")))
    return frame.repartition("date", "queue").sortWithinPartitions("date", "queue", "key", "id").drop("date")


def day_of(instant: Column) -> Column:
    """The day in UTC, independent of the session's time zone."""
    return F.date_from_unix_date(F.floor(F.unix_micros(instant) / F.lit(_DAY_US)).cast("int"))


@dataclass(frozen=True, slots=True)
class Measured:
    """The result of reading files back."""

    files: tuple[LakeFile, ...]
    min_at: datetime | None
    max_at: datetime | None

    def by_day(self) -> dict[date, Digest]:
        return by_day(self.files)


def measure_batch(spark: SparkSession, lake: Lake, batch: Batch) -> Measured:
    """Read all files in the directory of a batch: row counts, and the digest that PostgreSQL computes for the same
    rows.
    """
    frame = spark.read.schema(FILE).parquet(lake.uri(batch.directory))
    return _measured(frame, batch.directory)


def measure_files(spark: SparkSession, lake: Lake, files: Sequence[LakeFile]) -> dict[str, Digest]:
    """Digest of the current content of these files by path. Missing files are left out."""
    here = [file for file in files if lake.has(spark, file.path)]
    if not here:
        return {}
    frame = spark.read.schema(FILE).option("ignoreCorruptFiles", "true").parquet(*(lake.uri(f.path) for f in here))
    found = _measured(frame, "events")
    return {file.path: file.digest for file in found.files}


def inside(directory: str, uri: str) -> str:
    """The path of a file inside the lake, from the URI that Spark reports. The last occurrence of the directory counts:
    the lake may itself be below a directory of this name, and nothing inside it has this name.
    """
    return f"{directory}/{uri.rpartition(f'/{directory}/')[2]}"


def _measured(frame: DataFrame, directory: str) -> Measured:
    columns = [F.col(name) for name in FILE.names]
    located = frame.select(
        *columns, F.col("_metadata.file_path").alias("path"), F.col("_metadata.file_size").alias("bytes")
    )
    pieces: dict[str, list[Any]] = defaultdict(list)
    for row in located.mapInArrow(_pieces, PIECE).collect():
        pieces[inside(directory, row.path)].append(row)
    rows = [row for found in pieces.values() for row in found]
    return Measured(
        tuple(_file(path, found) for path, found in sorted(pieces.items())),
        _instant(min((row.min_at for row in rows), default=None)),
        _instant(max((row.max_at for row in rows), default=None)),
    )


def _file(path: str, pieces: Sequence[Any]) -> LakeFile:
    said = dict(part.split("=", 1) for part in path.split("/") if "=" in part)
    return LakeFile(
        path=path,
        day=date.fromisoformat(said["date"]),
        queue_id=pieces[0].queue_id,
        queue=pieces[0].queue,
        rows=sum(piece.rows for piece in pieces),
        checksum=sum(piece.checksum for piece in pieces) % 2**64,
        bytes=pieces[0].bytes,
    )


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """On the executors: one row per record batch and file."""
    import numpy as np
    import pyarrow as pa

    from tarry.edges.spark.hashing import event_hash

    for batch in batches:
        hashes = event_hash(batch)
        coded = batch.column("path").dictionary_encode()
        places = coded.indices.to_numpy(zero_copy_only=False)
        instants = batch.column("at").cast(pa.int64()).to_numpy()
        found: list[dict[str, Any]] = []
        for place, path in enumerate(coded.dictionary.to_pylist()):
            mine = places == place
            first = int(np.argmax(mine))
            found.append(
                {
                    "path": path,
                    "queue_id": batch.column("queue_id")[first].as_py(),
                    "queue": batch.column("queue_name")[first].as_py(),
                    "rows": int(mine.sum()),
                    "checksum": int(hashes[mine].sum().astype(np.uint64).view(np.int64)),
                    "min_at": int(instants[mine].min()),
                    "max_at": int(instants[mine].max()),
                    "bytes": batch.column("bytes")[first].as_py(),
                }
            )
        if found:
            yield pa.RecordBatch.from_pylist(
                found,
                schema=pa.schema(
                    [
                        ("path", pa.string()),
                        ("queue_id", pa.int32()),
                        ("queue", pa.string()),
                        *((name, pa.int64()) for name in ("rows", "checksum", "min_at", "max_at", "bytes")),
                    ]
                ),
            )


def _instant(us: int | None) -> datetime | None:
    return None if us is None else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)
