# pyright: basic
"""The Delta log of the archive (`events/_delta_log`), for readers without access to PostgreSQL.

The manifest is authoritative; the log lists its files with their date and queue. After a crash between the two the log is
one run behind, which is a consistent earlier state of the archive; the next run catches up. Files are added and removed in
one commit, so readers never see half of a compaction.
"""

import json
import time
from collections.abc import Sequence

import deltalake
from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql.types import DateType, StringType, StructType

from tarry.core.analytics.manifest import Batch
from tarry.edges.spark.lake.lake import FILE, Lake
from tarry.edges.spark.lake.tables import PROPERTIES, log_uri, sync_log

TABLE = "events"
_BY = ["date", "queue"]


def publish(lake: Lake, batches: Sequence[Batch]) -> None:
    """Make the log list exactly the files of the manifest, if a log can be written there. Call this before deleting
    files, so that the log never names a deleted one.
    """
    uri = log_uri(lake, TABLE)
    if uri is None:
        return
    # Paths are relative to the table. The protocol requires URL encoding; these paths contain nothing to encode.
    files = {file.path.removeprefix(f"{TABLE}/"): file for batch in batches for file in batch.files}
    columns = StructType([*FILE.fields]).add("date", DateType()).add("queue", StringType())
    schema = deltalake.Schema.from_json(columns.json())
    if deltalake.DeltaTable.is_deltatable(uri):
        table = deltalake.DeltaTable(uri)
    else:
        table = deltalake.DeltaTable.create(uri, schema, partition_by=_BY, name=TABLE, configuration=dict(PROPERTIES))
    known = set(table.get_add_actions(flatten=True).column("path").to_pylist())
    now = int(time.time() * 1000)
    removed = [RemoveAction(path, True, now) for path in sorted(known - files.keys())]
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
        if path not in known
    ]
    if added or removed:
        table.create_write_transaction([*added, *removed], "append", schema, partition_by=_BY)
    sync_log(lake, TABLE, table)
