# pyright: basic
"""The Delta log of the archive (`events/_delta_log`), for readers without access to PostgreSQL.

The manifest is authoritative; the log lists its files with their date and queue. After a crash between the two the log is
one run behind, which is a consistent earlier state of the archive; the next run catches up, also if it finds nothing new.
Files are added and removed in one commit, so readers never see half of a compaction.
"""

import json
import time
from collections.abc import Mapping, Sequence

import deltalake
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction
from pyspark.sql.types import DateType, StringType, StructType

from tarry.core.analytics.manifest import Batch, LakeFile
from tarry.edges.spark.lake.lake import FILE, Lake
from tarry.edges.spark.lake.tables import PROPERTIES, log_uri, sync_log

TABLE = "events"
_BY = ["date", "queue"]


def append(lake: Lake, head: Batch | None, batches: Sequence[Batch]) -> bool:
    """Add the files of new batches to a log that ends with `head`. False: it does not, and has to be published as a whole,
    also without new batches: the run before was killed.
    """
    uri = log_uri(lake, TABLE)
    if uri is None or (head is None and not batches):
        return True
    if head is None or not deltalake.DeltaTable.is_deltatable(uri):
        return False
    table = deltalake.DeltaTable(uri)
    if table.transaction_version(TABLE) != head.position:
        return False
    if batches:
        _commit(lake, table, batches[-1].position, _files(batches), ())
    return True


def publish(lake: Lake, batches: Sequence[Batch]) -> None:
    """Make the log list exactly the files of the manifest, if a log can be written there. Call this before deleting
    files, so that the log never names a deleted one.
    """
    uri = log_uri(lake, TABLE)
    if uri is None:
        return
    files = _files(batches)
    if deltalake.DeltaTable.is_deltatable(uri):
        table = deltalake.DeltaTable(uri)
    else:
        table = deltalake.DeltaTable.create(
            uri, _schema(), partition_by=_BY, name=TABLE, configuration=dict(PROPERTIES)
        )
    known = set(table.get_add_actions(flatten=True).column("path").to_pylist())
    added = {path: file for path, file in files.items() if path not in known}
    position = batches[-1].position if batches else 0
    if added or known - files.keys() or table.transaction_version(TABLE) != position:
        _commit(lake, table, position, added, sorted(known - files.keys()))


def _schema() -> deltalake.Schema:
    columns = StructType([*FILE.fields]).add("date", DateType()).add("queue", StringType())
    return deltalake.Schema.from_json(columns.json())


def _files(batches: Sequence[Batch]) -> dict[str, LakeFile]:
    """By path relative to the table. The protocol requires URL encoding; these paths contain nothing to encode."""
    return {file.path.removeprefix(f"{TABLE}/"): file for batch in batches for file in batch.files}


def _commit(
    lake: Lake, table: deltalake.DeltaTable, position: int, files: Mapping[str, LakeFile], gone: Sequence[str]
) -> None:
    now = int(time.time() * 1000)
    added = [
        AddAction(
            path=path,
            size=file.bytes,
            partition_values={"date": file.day.isoformat(), "queue": file.queue},
            modification_time=now,
            data_change=True,
            stats=json.dumps({"numRecords": file.rows}),
        )
        for path, file in files.items()
    ]
    table.create_write_transaction(
        [*added, *(RemoveAction(path, True, now) for path in gone)],
        "append",
        _schema(),
        partition_by=_BY,
        commit_properties=CommitProperties(app_transactions=[Transaction(TABLE, position)]),
    )
    sync_log(lake, TABLE, table)
