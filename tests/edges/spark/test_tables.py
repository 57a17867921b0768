"""Tables of the lake: a reader sees one version of them, whole, whatever dies meanwhile."""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from deltalake import DeltaTable

from tarry.edges.spark.lake import delta, tables
from tarry.edges.spark.lake.lake import Lake
from tarry.edges.spark.lake.tables import LakeTable
from tarry.edges.spark.sizing import local_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MONDAY, TUESDAY = date(2026, 1, 5), date(2026, 1, 6)


def read_by_duckdb(lake: str, version: int | None = None) -> list[tuple[Any, ...]]:
    """One version of the table, by a library that knows nothing of Tarry, and DuckDB."""
    files = DeltaTable(f"{lake}/counts", version=version).file_uris()
    with duckdb.connect() as db:
        text = "select n, date from read_parquet(?, hive_partitioning = true, union_by_name = true) order by all"
        return db.execute(text, [files]).fetchall()


def test_a_commit_replaces_days_at_once_and_only_once(
    spark: SparkSession, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = LakeTable(Lake.at(lake), "counts")

    def rows(*pairs: tuple[int, date]) -> DataFrame:
        return local_frame(spark, pairs, "n long, date date")

    def read() -> list[tuple[int, date]]:
        frame = table.read(spark)
        return [] if frame is None else sorted((row.n, row.date) for row in frame.select("n", "date").collect())

    assert (read(), table.committed()) == ([], 0)
    table.replace_days(rows((1, MONDAY), (2, MONDAY), (3, TUESDAY)), [MONDAY, TUESDAY], 1)
    first = [(1, MONDAY), (2, MONDAY), (3, TUESDAY)]
    assert (read(), read_by_duckdb(lake)) == (first, first)
    assert {(file.date, file.low["n"], file.high["n"]) for file in table.files([TUESDAY])} == {(TUESDAY, 3, 3)}

    with monkeypatch.context() as patch:  # all files of a new Tuesday are there, and the commit is not
        patch.setattr(tables, "CommitProperties", None)
        with pytest.raises(TypeError):
            table.replace_days(rows((4, TUESDAY), (5, TUESDAY)), [TUESDAY], 2)
    assert (read(), read_by_duckdb(lake), table.committed()) == (first, first, 1)

    held = table.read(spark)
    assert held is not None
    table.replace_days(rows((6, TUESDAY)), [TUESDAY], 2)
    table.replace_days(rows((7, TUESDAY)), [TUESDAY], 2)  # repeated: it is there
    second = [(1, MONDAY), (2, MONDAY), (6, TUESDAY)]
    assert (read(), read_by_duckdb(lake), table.committed()) == (second, second, 2)
    assert held.count() == 3, "a reader that began before continues with the files of its version"
    assert read_by_duckdb(lake, version=1) == first

    evolved = local_frame(spark, [(8, TUESDAY, "x")], "n long, date date, why string")
    table.commit(evolved, [], 3)
    frame = table.read(spark)
    assert frame is not None
    assert sorted((row.n, row.why) for row in frame.collect()) == [(1, None), (2, None), (6, None), (8, "x")]

    monkeypatch.setattr(tables, "_TIDY_EVERY", 1)
    DeltaTable(f"{lake}/counts").alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 0 hours"})
    table.replace_days(rows((9, TUESDAY)), [TUESDAY], 4)
    stored = {path.as_posix() for path in Path(lake, "counts").rglob("*.parquet") if "_delta_log" not in path.parts}
    assert stored == set(DeltaTable(f"{lake}/counts").file_uris())
    empty = [path for path in Path(lake, "counts").rglob("*") if path.is_dir() and not any(path.iterdir())]
    assert empty == []


def test_the_entry_of_the_log_is_on_disk_when_the_commit_returns(
    spark: SparkSession, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: set[str] = set()

    def fsync(file: int) -> None:
        flush(file)
        flushed.add(str(Path(f"/proc/self/fd/{file}").readlink()))

    flush = os.fsync
    monkeypatch.setattr(os, "fsync", fsync)
    delta.publish(Lake.at(lake), [])
    LakeTable(Lake.at(lake), "counts").commit(local_frame(spark, [(1, MONDAY)], "n long, date date"), [], 1)
    for table in ("events", "counts"):
        written = {path.as_posix() for path in Path(lake, table).rglob("*") if path.suffix in (".json", ".parquet")}
        assert written
        assert written <= flushed
