# pyright: basic
"""The Delta log of the archive (`events/_delta_log`), for readers without access to PostgreSQL.

The manifest is authoritative; the log lists its files with their date and queue. After a crash between the two, the log is
one run behind, which is a consistent earlier state of the archive; the next run catches up, even without new events. Files
are added and removed in one commit, so readers never see half of a compaction.
"""

from collections.abc import Mapping, Sequence

import deltalake
from pyspark.sql.types import DateType, StringType, StructType

from tarry.core.analytics.manifest import Batch, LakeFile
from tarry.edges.spark.lake.lake import FILE, Lake
from tarry.edges.spark.lake.tables import add_action, commit, created, log_uri

TABLE = "events"


def append(lake: Lake, head: Batch | None, batches: Sequence[Batch]) -> bool:
    """Add the files of new batches to a log that ends with `head`. False: it does not, because a run was killed; publish the
    whole log, even without new batches.
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
    """Make the log list exactly the files of the manifest, if the lake can have a log. Call this before deleting files, so
    the log never names a deleted file.
    """
    uri = log_uri(lake, TABLE)
    if uri is None:
        return
    files = _files(batches)
    if deltalake.DeltaTable.is_deltatable(uri):
        table = deltalake.DeltaTable(uri)
    else:
        columns = StructType([*FILE.fields]).add("date", DateType()).add("queue", StringType())
        table = created(uri, TABLE, deltalake.Schema.from_json(columns.json()), ["date", "queue"])
    known = set(table.get_add_actions(flatten=True).column("path").to_pylist())
    added = {path: file for path, file in files.items() if path not in known}
    position = batches[-1].position if batches else 0
    if added or known - files.keys() or table.transaction_version(TABLE) != position:
        _commit(lake, table, position, added, sorted(known - files.keys()))


def _files(batches: Sequence[Batch]) -> dict[str, LakeFile]:
    """By path relative to the table. The protocol requires URL encoding; these paths contain nothing to encode."""
    return {file.path.removeprefix(f"{TABLE}/"): file for batch in batches for file in batch.files}


def _commit(
    lake: Lake, table: deltalake.DeltaTable, position: int, files: Mapping[str, LakeFile], gone: Sequence[str]
) -> None:
    added = [
        add_action(path, file.bytes, {"date": f"{file.day}", "queue": file.queue}, {"numRecords": file.rows})
        for path, file in files.items()
    ]
    commit(lake, table, position, added, gone)
