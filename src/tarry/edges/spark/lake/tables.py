# pyright: basic
"""Delta tables in the lake: Spark tasks write the data files, the driver commits them.

A commit atomically removes files, adds files and records its number: readers see the version before or after it, and a commit
repeated after a crash has no effect. Readers take the list of files from the log, never from the directory.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from math import log
from typing import Any
from uuid import uuid4

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction
from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tarry.core.errors import InvalidState, TarryError
from tarry.edges.spark.lake.lake import Lake

PROPERTIES = {"delta.logRetentionDuration": "interval 1 days", "delta.deletedFileRetentionDuration": "interval 1 hours"}
"""Replaced files stay for an hour, for readers of an earlier version; users may set another duration per table."""
MANY = 8
"""Number of files of one magnitude that are merged."""
_MAGNITUDE = 8
_LARGE = 1_000_000
"""Files with this many rows are not merged any more."""
_TIDY_EVERY = 50
"""Commits between two deletions of unneeded files."""
_SCHEMES = ("abfs", "abfss", "az", "gs", "hdfs", "s3", "s3a")


@dataclass(frozen=True, slots=True)
class TableFile:
    """A data file of one version of a table. Its path is relative to the table."""

    path: str
    date: date | None
    rows: int
    bytes: int
    low: Mapping[str, Any] = field(compare=False)
    """Minimum of each column with numbers or instants."""
    high: Mapping[str, Any] = field(compare=False)


@dataclass(frozen=True, slots=True)
class LakeTable:
    """A lake table, partitioned by its column `date` if it has one. Only one job writes it, under its lock."""

    lake: Lake
    name: str

    def committed(self) -> int:
        """The number of the last commit; 0 before the first."""
        table = self._stored()
        return 0 if table is None else table.transaction_version(self.name) or 0

    def files(self, dates: Iterable[date] | None = None) -> list[TableFile]:
        """The files of the current version, or those of these dates."""
        table = self._stored()
        of_dates = None if dates is None else set(dates)
        rows = [] if table is None else pa.table(table.get_add_actions(flatten=True)).to_pylist()
        return [_listed(row) for row in rows if of_dates is None or row["partition.date"] in of_dates]

    def read(self, spark: SparkSession, files: Sequence[TableFile] | None = None) -> DataFrame | None:
        """The rows of the current version, or of these files; None without files."""
        table = self._stored()
        listed = self.files() if files is None else files
        if table is None or not listed:
            return None
        schema = StructType.fromJson(json.loads(table.schema().to_json()))
        reader = spark.read.schema(schema).option("basePath", self.lake.uri(self.name))
        return reader.parquet(*(self.lake.uri(f"{self.name}/{file.path}") for file in listed)).select(*schema.names)

    def replace_days(self, frame: DataFrame, days: Iterable[date], number: int) -> None:
        """Replace the content of these days by these rows."""
        self.commit(frame, self.files(days), number)

    def commit(self, frame: DataFrame, removed: Sequence[TableFile], number: int, *by: str) -> None:
        """Replace these files by these rows, unless the last commit has this number.

        `by`: unstored columns of the frame; each combination of their values gets its own files.
        """
        committed = self.committed()
        if committed > number:
            raise InvalidState(
                f"the table {self.name} of the lake {self.lake.root} has commit {committed}, but the database is at "
                f"{number}: the lake belongs to a later state of the database",
                hint="choose another location for the lake",
            )
        if committed < number:
            self._replace(frame, removed, number, *by)

    def erase(self, spark: SparkSession, condition: str, *, before: date | None = None) -> int:
        """Remove the rows that match a condition, and every file that the current version does not need, so no earlier
        version has them either. `before`: only in files of earlier dates, and versions of the last hour stay. The number of
        the last commit is unchanged, so the jobs that write the table are not affected. Returns the number of rows.
        """
        table = self._stored()
        if table is None:
            return 0
        rows = 0
        files = [file for file in self.files() if before is None or (file.date is not None and file.date < before)]
        if (stored := self.read(spark, files)) is not None:
            matching = stored.where(condition).select("_metadata.file_path").groupBy("file_path").count().collect()
            rows = sum(row["count"] for row in matching)
            changed = [file for file in files if any(row.file_path.endswith(f"/{file.path}") for row in matching)]
            kept = self.read(spark, changed)
            if kept is not None:
                self._replace(kept.where(f"({condition}) is not true"), changed, self.committed())
        if before is None:
            table.update_incremental()
            self._tidy(spark, table, hours=0)
        return rows

    def _replace(self, frame: DataFrame, removed: Sequence[TableFile], number: int, *by: str) -> None:
        directory = f"{self.name}/write={uuid4().hex}"
        writer = frame.write.partitionBy(*self._partitions, *by).option("compression", "zstd").mode("overwrite")
        writer.parquet(self.lake.uri(directory))
        added = self._written(frame.sparkSession, directory)
        self.lake.synced(directory)
        fields = [field for field in frame.schema.fields if field.name not in by]
        schema = deltalake.Schema.from_json(StructType(fields).json())
        table = self._with(schema)
        commit(self.lake, table, number, added, [file.path for file in removed])
        if table.version() % _TIDY_EVERY == 0:
            self._tidy(frame.sparkSession, table)

    def _tidy(self, spark: SparkSession, table: deltalake.DeltaTable, hours: int | None = None) -> None:
        """Delete files that no version of the last hours needs, including those of runs killed before their commit."""
        for path in table.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True):
            self.lake.remove(spark, f"{self.name}/{path}")

    @property
    def _partitions(self) -> list[str]:
        return [] if self.name in ("open", "verified") else ["date"]

    def _stored(self) -> deltalake.DeltaTable | None:
        uri = self._uri()
        return deltalake.DeltaTable(uri) if deltalake.DeltaTable.is_deltatable(uri) else None

    def _with(self, schema: deltalake.Schema) -> deltalake.DeltaTable:
        """The table, created if it is missing, with all columns of the schema."""
        table = self._stored()
        if table is None:
            return created(self._uri(), self.name, schema, self._partitions)
        known = {field.name for field in table.schema().fields}
        if missing := [field for field in schema.fields if field.name not in known]:
            table.alter.add_columns(missing)
        return table

    def _uri(self) -> str:
        uri = log_uri(self.lake, self.name)
        if uri is None:
            raise TarryError(
                f"the tables of the lake {self.lake.root} have a Delta log, which cannot be written there",
                hint=f"choose a directory, or a URI of {', '.join(_SCHEMES)}",
            )
        return uri

    def _written(self, spark: SparkSession, directory: str) -> list[AddAction]:
        """The files in a directory, with the statistics of their footers."""
        system, root = fs.FileSystem.from_uri(self.lake.uri() if self.lake.path is not None else log_uri(self.lake))
        added: list[AddAction] = []
        for path in sorted(self.lake.files(spark, directory)):
            if path.endswith(".parquet"):
                with system.open_input_file(f"{root}/{path}") as file:
                    added.append(_added(path.removeprefix(f"{self.name}/"), file.size(), pq.read_metadata(file)))
        return added


def worth_merging(files: Sequence[TableFile]) -> list[TableFile]:
    """Files in large groups of one date and one order of magnitude. So each row is rewritten a few times, and a table that
    gets a file every minute has few files per day.
    """
    groups: dict[tuple[date | None, int], list[TableFile]] = defaultdict(list)
    for file in files:
        if file.rows < _LARGE:
            groups[file.date, int(log(max(file.rows, 1), _MAGNITUDE))].append(file)
    return [file for group in groups.values() if len(group) >= MANY for file in group]


def created(uri: str, name: str, schema: deltalake.Schema, partitions: list[str]) -> deltalake.DeltaTable:
    return deltalake.DeltaTable.create(uri, schema, partition_by=partitions, name=name, configuration={**PROPERTIES})


def commit(
    lake: Lake, table: deltalake.DeltaTable, number: int, added: Sequence[AddAction], removed: Sequence[str]
) -> None:
    """Write a commit with this number, durably, because PostgreSQL records it afterwards.

    Only the newest log entries are flushed: the commit, and before it the creation of the table or of a column. A day has
    more than a thousand entries, and flushing all of them took two seconds.
    """
    now, about = int(time.time() * 1000), table.metadata()
    table.create_write_transaction(
        [*added, *(RemoveAction(path, True, now) for path in removed)],
        "append",
        table.schema(),
        partition_by=about.partition_columns,
        commit_properties=CommitProperties(app_transactions=[Transaction(about.name, number)]),
    )
    table.update_incremental()
    last = table.version()
    entries = (f"{version:020}.json" for version in range(max(0, last - 2), last + 1))
    lake.synced_files(f"{about.name}/_delta_log", entries)


def add_action(path: str, size: int, partition: Mapping[str, str], statistics: Mapping[str, Any]) -> AddAction:
    """The Delta action that adds a file."""
    return AddAction(
        path=path,
        size=size,
        partition_values=dict(partition),
        modification_time=int(time.time() * 1000),
        data_change=True,
        stats=json.dumps(statistics),
    )


def log_uri(lake: Lake, table: str = "") -> str | None:
    """The URI of a table for the Delta library; None if the library does not support the scheme."""
    if lake.path is not None:
        return str(lake.path / table)
    scheme, rest = lake.root.split("://", 1)
    where = f"{'s3' if scheme == 's3a' else scheme}://{rest}"
    return f"{where}/{table}".rstrip("/") if scheme in _SCHEMES else None


def _listed(row: Mapping[str, Any]) -> TableFile:
    low, high = (
        {name.removeprefix(end): value for name, value in row.items() if name.startswith(end)}
        for end in ("min.", "max.")
    )
    return TableFile(row["path"], row.get("partition.date"), row["num_records"], row["size_bytes"], low, high)


def _added(path: str, size: int, footer: pq.FileMetaData) -> AddAction:
    partition = {"date": path.split("/date=", 1)[1].split("/", 1)[0]} if "/date=" in path else {}
    return add_action(path, size, partition, {"numRecords": footer.num_rows, **_statistics(footer)})


def _statistics(footer: pq.FileMetaData) -> dict[str, Any]:
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    for n in range(footer.num_columns):
        chunks = [footer.row_group(group).column(n) for group in range(footer.num_row_groups)]
        stored = [chunk.statistics for chunk in chunks]
        if stored and all(of is not None and of.has_min_max and isinstance(of.min, int | datetime) for of in stored):
            name = chunks[0].path_in_schema
            if "." not in name:  # not inside an array or a struct
                low[name], high[name] = _shown(min(of.min for of in stored)), _shown(max(of.max for of in stored))
    return {"minValues": low, "maxValues": high}


def _shown(value: Any) -> Any:
    is_instant = isinstance(value, datetime)
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ") if is_instant else value
