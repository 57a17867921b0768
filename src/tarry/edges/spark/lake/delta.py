# pyright: basic
"""A Delta log beside the archive (`events/_delta_log`), for readers without access to PostgreSQL.

The manifest is authoritative; the log mirrors its files with their date and queue. After a crash between the two, the
log lags one run behind, which is a consistent earlier state of the archive; the next run catches up. Files are added
and removed in one commit, so readers never see half of a compaction.
"""

import json
import time
from collections.abc import Sequence
from importlib.util import find_spec

from pyspark.sql import SparkSession
from pyspark.sql.types import DateType, StringType, StructType

from tarry.core.analytics.manifest import Batch
from tarry.core.errors import TarryError
from tarry.edges.spark.lake.lake import FILE, Lake

TABLE = "events"
_LOG = f"{TABLE}/_delta_log"
_BY = ["date", "queue"]


def keep(spark: SparkSession, lake: Lake, batches: Sequence[Batch], *, begin: bool = False) -> int | None:
    """Make the log list exactly the files of the manifest. Returns its version, or None if there is no log.

    `begin`: create the log if it does not exist. Call this before deleting files, so that the log never names a deleted
    one.
    """
    if not is_kept(spark, lake, begin=begin):
        return None
    import deltalake  # pyright: ignore[reportMissingImports]
    from deltalake.transaction import AddAction, RemoveAction  # pyright: ignore[reportMissingImports]

    # Paths are relative to the table. The protocol requires URL encoding; these paths contain nothing to encode.
    files = {file.path.removeprefix(f"{TABLE}/"): file for batch in batches for file in batch.files}
    columns = StructType([*FILE.fields]).add("date", DateType()).add("queue", StringType())
    schema = deltalake.Schema.from_json(columns.json())
    uri = str(lake.path / TABLE) if lake.path is not None else lake.uri(TABLE)
    if deltalake.DeltaTable.is_deltatable(uri):
        table = deltalake.DeltaTable(uri)
    else:
        table = deltalake.DeltaTable.create(uri, schema, partition_by=_BY, name="events of Tarry")
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
    return int(table.version())


def is_kept(spark: SparkSession, lake: Lake, *, begin: bool = False) -> bool:
    """Whether a log exists or is to be created; raises if the library to write it is missing."""
    if not begin and not lake.has(spark, _LOG):
        return False
    if find_spec("deltalake") is None:
        raise TarryError(f"the Delta log of {lake.root} needs the package deltalake", hint="pip install 'tarry[delta]'")
    return True
