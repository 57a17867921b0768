"""The lake: Parquet files by batch, date and queue. The manifest lists them, not the directory."""

# pyright: basic
from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType, StructField, StructType, TimestampType

from tarry.app import App, default_lake
from tarry.core.analytics.manifest import Batch, LakeFile, QueueNames, readable_files
from tarry.core.errors import InvalidInput, InvalidState
from tarry.core.journal.snapshots import Digest
from tarry.edges.spark.schemas import EVENTS
from tarry.edges.spark.sizing import local_frame
from tarry.edges.spark.transforms.query import dated, query, sql
from tarry.wire.base import same_fields

# The directory `queue=…` is for users and tools that read only some queues. The name is also a column of the file: a
# directory name cannot distinguish "7" from 7, nor `A` from `a` on case-insensitive file systems.
FILE = StructType([StructField("queue_name" if f.name == "queue" else f.name, f.dataType) for f in EVENTS.fields])
_POSTGRES_EPOCH_US = 946_684_800_000_000
_PATTERN = frozenset("*?[]{}\\")
_OWNER = "_tarry_owner"


@dataclass(frozen=True, slots=True)
class Lake:
    """A location that Spark can write to: a local directory or a URI."""

    root: str

    @classmethod
    def at(cls, root: str | None = None) -> Lake:
        """The lake at `root`; None: the default, next to the embedded data."""
        given = str(default_lake()) if root is None else root.strip()
        if not given:
            raise InvalidInput("the lake needs a location: a directory, or a URI that Spark can write to")
        if patterns := sorted(_PATTERN & set(given)):
            raise InvalidInput(
                f"the lake is at {given}, but Spark would read {' '.join(patterns)} as a path pattern",
                hint="choose a location without any of " + " ".join(sorted(_PATTERN)),
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
        # With an explicit scheme: a cluster may have another default file system.
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

    def synced_files(self, directory: str, names: Iterable[str]) -> None:
        """Fsync these files, if they exist, their directory, and the directory above."""
        if self.path is not None:
            top = self.path / directory
            for path in (*(top / name for name in names), top, top.parent):
                if path.exists():
                    _fsync(path)

    def claim(self, spark: SparkSession, installation: str) -> None:
        """Refuse the lake of another installation; the first one that writes to a lake owns it.

        Each installation numbers its batches and runs itself: a second one would replace the files of the first, or delete
        them as strays.
        """
        owner = self._owner(installation) if self.path is not None else self._owner_at_uri(spark, installation)
        if owner != installation:
            raise InvalidState(
                f"the lake {self.root} belongs to another installation of Tarry: another database or schema",
                hint=f"choose another: --lake; if this database has replaced the other one, delete {self.root}/{_OWNER}",
            )

    def _owner(self, installation: str) -> str:
        root = Path(self.root)
        root.mkdir(parents=True, exist_ok=True)
        if not (root / _OWNER).exists():
            written = root / f"{_OWNER}.{uuid4().hex}"
            written.write_text(installation)
            _fsync(written)
            with suppress(FileExistsError):  # another run was faster
                os.link(written, root / _OWNER)  # atomically, with its content
            written.unlink()
            _fsync(root)
        return (root / _OWNER).read_text()

    def _owner_at_uri(self, spark: SparkSession, installation: str) -> str:
        system, where = self._hadoop(spark, _OWNER)
        if not system.exists(where):
            stream = system.create(where, False)
            stream.write(bytearray(installation.encode()))
            stream.close()
        stream = system.open(where)
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def sizes(self, spark: SparkSession, paths: Iterable[str]) -> dict[str, int]:
        """The sizes of the existing files."""
        names, stored = list(paths), dict[str, int]()
        for directory in {path.rpartition("/")[0] for path in names}:
            stored |= self.files(spark, directory)
        return {path: stored[path] for path in names if path in stored}

    def remove(self, spark: SparkSession, relative: str) -> None:
        """Delete a file or a directory, if it exists, and then empty directories above it."""
        if not relative:
            raise InvalidInput("the lake itself is never deleted")
        if self.path is not None:
            target = self.path / relative
            shutil.rmtree(target, ignore_errors=True) if target.is_dir() else target.unlink(missing_ok=True)
            with suppress(OSError):  # not empty
                for above in target.parents[: len(target.relative_to(self.path).parts) - 1]:
                    above.rmdir()
            return
        system, where = self._hadoop(spark, relative)
        system.delete(where, True)

    def sweep(self, spark: SparkSession, known: Collection[str]) -> int:
        """Delete directories of unknown batches, written by executors that outlived their run."""
        stored = [f"events/{name}" for name in self.entries(spark, "events") if name.startswith("batch=")]
        strays = [directory for directory in stored if directory not in known]
        for directory in strays:
            self.remove(spark, directory)
        return len(strays)

    def sweep_files(self, spark: SparkSession, batches: Iterable[Batch]) -> None:
        """Delete files that their batch does not name: retired ones, or files written late by an executor.

        If a named file is missing, another program changed the directory: nothing is deleted, and `verify` reports it.
        """
        for batch in batches:
            named = {file.path for file in batch.files}
            data_files = {path: _data_file(path) for path in self.files(spark, batch.directory)}
            if named <= data_files.keys():
                for path, file in data_files.items():
                    if file is not None and file not in named:
                        self.remove(spark, path)

    def files(self, spark: SparkSession, directory: str) -> dict[str, int]:
        """The files below a directory, with their sizes."""
        if self.path is not None:
            below = (path for path in (self.path / directory).rglob("*") if path.is_file())
            return {path.relative_to(self.path).as_posix(): path.stat().st_size for path in below}
        system, where = self._hadoop(spark, directory)
        files, sizes = system.listFiles(where, True) if system.exists(where) else None, dict[str, int]()
        while files is not None and files.hasNext():
            file = files.next()
            sizes[f"{directory}/{str(file.getPath()).split(f'/{directory}/', 1)[1]}"] = int(file.getLen())
        return sizes

    def entries(self, spark: SparkSession, folder: str) -> list[str]:
        """The names of the files and directories in a folder; none if it does not exist."""
        if self.path is not None:
            top = self.path / folder
            return sorted(entry.name for entry in top.iterdir()) if top.is_dir() else []
        system, where = self._hadoop(spark, folder)
        return [str(status.getPath().getName()) for status in system.listStatus(where)] if system.exists(where) else []

    def _hadoop(self, spark: SparkSession, relative: str) -> tuple[Any, Any]:
        """File system and path through Hadoop, for lakes that are not local."""
        context: Any = spark.sparkContext
        where = context._jvm.org.apache.hadoop.fs.Path(self.uri(relative))
        return where.getFileSystem(context._jsc.hadoopConfiguration()), where


def _data_file(path: str) -> str | None:
    """The Parquet file of this path, which may be its checksum file; None if neither."""
    folder, _, name = path.rpartition("/")
    data = name.removeprefix(".").removesuffix(".crc") if name.startswith(".") else name
    return f"{folder}/{data}" if data.endswith(".parquet") else None


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def own_lake(spark: SparkSession, app: App, location: str | None) -> Lake:
    """The lake at this location, for a job that writes to it."""
    lake = Lake.at(location)
    lake.claim(spark, app.pipeline.windows.installation_id())
    if lake.path is not None and not os.access(lake.path, os.W_OK):
        raise InvalidState(f"the lake {lake.root} cannot be written: it is read-only, or belongs to another user")
    return lake


def read_events(
    spark: SparkSession,
    app: App,
    lake: Lake | str | None = None,
    *,
    since: date | None = None,
    until: date | None = None,
    queue: str | None = None,
) -> DataFrame:
    """The archived events of these days (inclusive, UTC), with the columns of `EVENTS` and the current queue names. A renamed
    queue has one history.
    """
    archive = lake if isinstance(lake, Lake) else Lake.at(lake)
    batches = app.pipeline.manifest.batches(archive.root)
    names = app.pipeline.analytics.queue_names()
    only = None if queue is None else names[app.pipeline.analytics.queue_id(queue)]
    files = list(readable_files(batches, since=since, until=until, queue=only))
    frame = read_files(spark, archive, [file.path for file in files])
    renamed = {file.queue_id: names[file.queue_id] for file in files if file.queue_id in names}
    frame = currently_named(frame, [of for id, of in renamed.items() if of.former])
    return frame if only is None else frame.where(f"queue_id = {only.queue_id}")


def currently_named(frame: DataFrame, queues: Iterable[QueueNames]) -> DataFrame:
    """The frame with the current names of these queues in its column `queue`."""
    names = " ".join(f"when {of.queue_id} then '{of.name}'" for of in queues)
    return frame.withColumn("queue", F.expr(f"case queue_id {names} else queue end")) if names else frame


def read_files(spark: SparkSession, lake: Lake, paths: Sequence[str], *, lenient: bool = False) -> DataFrame:
    """The events in these files. `lenient`: read the readable part of corrupt files."""
    if not paths:
        return local_frame(spark, [], EVENTS)
    frame = _stored(spark, lake, paths, lenient=lenient)
    return frame.withColumnRenamed("queue_name", "queue").select(*EVENTS.names)


def _stored(spark: SparkSession, lake: Lake, paths: Iterable[str], *, lenient: bool = False) -> DataFrame:
    reader = spark.read.schema(FILE).option("ignoreCorruptFiles", str(lenient).lower())
    return reader.parquet(*map(lake.uri, paths))


def write_batch(frame: DataFrame, lake: Lake, batch: Batch, *, is_sorted: bool = False) -> None:
    """Write to the directory of the batch, by date and queue. Batch numbers are never reused, so the directory is new."""
    laid_out = frame.selectExpr("*", f"{dated('at')} as date", "queue as queue_name")
    # One file per date and queue, or several of Spark's advisory size, which only adaptive planning supports. Otherwise each
    # task would write its own file.
    is_adaptive = frame.sparkSession.conf.get("spark.sql.adaptive.enabled") == "true"
    laid_out = laid_out.hint("rebalance", "date", "queue") if is_adaptive else laid_out.repartition("date", "queue")
    if is_sorted:
        laid_out = laid_out.sortWithinPartitions("date", "queue", "key", "id")
    laid_out.write.partitionBy("date", "queue").option("compression", "zstd").mode("overwrite").parquet(
        lake.uri(batch.directory)
    )
    lake.synced(batch.directory)


@dataclass(frozen=True, slots=True)
class Measured:
    """The result of reading files back."""

    files: tuple[LakeFile, ...]
    min_at: datetime | None
    max_at: datetime | None


def measure_batch(spark: SparkSession, lake: Lake, batch: Batch) -> Measured:
    """Read back a batch: row counts, and the digest that PostgreSQL computes for the same rows."""
    return _measured(_stored(spark, lake, [batch.directory]), batch.directory)


def measure_files(spark: SparkSession, lake: Lake, files: Sequence[LakeFile]) -> dict[str, Digest]:
    """Digests of the current content of these files by path, without missing files."""
    paths = list(lake.sizes(spark, [file.path for file in files]))
    measured = _measured(_stored(spark, lake, paths, lenient=True), "events").files if paths else ()
    return {file.path: file.digest for file in measured}


def inside(directory: str, uri: str) -> str:
    """The path of a file inside the lake, from the URI that Spark reports. The last occurrence of the directory counts:
    the lake itself may be below a directory of this name.
    """
    return f"{directory}/{uri.rpartition(f'/{directory}/')[2]}"


def measure_rows(spark: SparkSession, lake: Lake, files: Sequence[LakeFile], condition: str) -> tuple[LakeFile, ...]:
    """The non-empty parts of these files that match a condition."""
    frame = _stored(spark, lake, [file.path for file in files]) if files else None
    return () if frame is None else _measured(frame.where(condition), "events").files


def _measured(frame: DataFrame, directory: str) -> Measured:
    located = frame.select("*", "_metadata.file_path", "_metadata.file_size")
    pieces = query(sql("digest", hash=event_hash()), files=located)
    rows = {inside(directory, row.path): row for row in pieces.collect()}
    return Measured(
        tuple(_file(path, row) for path, row in sorted(rows.items())),
        _instant(min((row.min_at for row in rows.values()), default=None)),
        _instant(max((row.max_at for row in rows.values()), default=None)),
    )


def event_hash() -> str:
    """`tarry.event_hash` of an event in a file: the first eight bytes of a SHA-256, as an unsigned number.

    The sum over the rows of a window in PostgreSQL must equal the sum over its files; otherwise rows were lost.
    """

    def text(field: StructField) -> str:
        value = field.name
        if isinstance(field.dataType, TimestampType):
            value = f"lpad(lower(hex(unix_micros({value}) - {_POSTGRES_EPOCH_US})), 16, '0')"
        elif field.name == "payload":
            value = f"sha2({value}, 256)"
        elif isinstance(field.dataType, BinaryType):
            value = f"lower(hex({value}))"
        return f"coalesce(string({value}), '-')"

    row = ", ".join(text(field) for field in FILE.fields if field.name != "queue_name")
    return f"cast(conv(substr(sha2(concat_ws('|', {row}), 256), 1, 16), 16, 10) as decimal(20, 0))"


def _file(path: str, row: Any) -> LakeFile:
    partition = dict(part.split("=", 1) for part in path.split("/") if "=" in part)
    day, checksum = date.fromisoformat(partition["date"]), int(row.checksum) % 2**64
    return LakeFile(path=path, day=day, checksum=checksum, **same_fields(row, LakeFile, "path", "checksum"))


def _instant(us: int | None) -> datetime | None:
    return None if us is None else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)
