"""The page on Spark documents what the code takes, and its examples run."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from psycopg.conninfo import make_conninfo

from tarry.core import limits
from tarry.core.analytics.bulk_offer import CommitUnit
from tarry.edges.cli.pipeline.jobs import ALL
from tarry.edges.spark.schemas import TABLES
from tarry.edges.spark.sink import options as sink_options
from tarry.edges.spark.sink import rows as sink_rows
from tarry.edges.spark.source import options as source_options
from tarry.edges.spark.transforms import consumers, facts, metrics
from tarry.edges.spark.transforms.anomalies import profiles
from tarry.edges.spark.transforms.anomalies.context import BANDS, PROFILES
from tarry.edges.spark.transforms.anomalies.findings import FINDINGS
from tests.docs.pages import SPARK_PAGE, blocks
from tests.docs.running import Reader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SECRET = "never-in-a-plan"


def table(*header: str) -> list[tuple[str, ...]]:
    """The rows of the first table below `header`, without the marks of code in their first cell."""
    return tables(header)[0]


def tables(header: Sequence[str]) -> list[list[tuple[str, ...]]]:
    lines = SPARK_PAGE.read_text(encoding="utf-8").splitlines()
    begins = [number + 2 for number, line in enumerate(lines) if cells(line) == tuple(header)]
    assert begins, f"the page has no table {header}"
    blocks: list[list[tuple[str, ...]]] = []
    for begin in begins:
        end = next((number for number in range(begin, len(lines)) if not lines[number].startswith("|")), len(lines))
        blocks.append([(first.strip("`"), *more) for first, *more in map(cells, lines[begin:end])])
    return blocks


def cells(line: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|"))


def test_the_options_of_source_and_sink_are_documented_as_in_the_code() -> None:
    read, written = tables(("option", ""))
    assert tuple(name for name, _ in read) == source_options.OPTIONS
    assert tuple(name for name, _ in written) == sink_options.OPTIONS
    assert str(limits.PAYLOAD_BYTES) in next(description for name, description in written if name == "payload_limit")


def test_every_documented_option_is_accepted() -> None:
    values = {"table": "events", "columns": "id", "since": "2030-01-01T00:00:00Z", "until": "2030-01-02T00:00:00Z"}
    values |= {"partitions": "2", "pushdown": "true", "maxRowsPerBatch": "5", "start": "latest", "startAnew": "true"}
    edge = '{"snapshot": "1:1:"}'
    values |= {"dsn": "dbname=x", "window": f'{{"start": {edge}, "end": {edge}}}'}
    assert values.keys() == set(source_options.OPTIONS)
    taken = source_options.parse(values)
    assert (taken.max_rows, taken.start, taken.start_anew, taken.partitions) == (5, "latest", True, 2)

    given = {"dsn": "dbname=x", "queue": "q", "write_id": "w", "conflict": "debounce", "max_wait_s": "5"}
    given |= {"payload_format": "text", "payload_limit": "10", "create_queues": "false", "commit": "task"}
    assert given.keys() == set(sink_options.OPTIONS)
    options = sink_options.SinkOptions.parse(given)
    assert (options.queue, options.write_id, options.payload_limit) == ("q", "w", 10)
    assert (options.rules.conflict.rule.value, options.rules.create_queues) == ("debounce", False)
    assert options.rules.commit is CommitUnit.TASK


def test_the_columns_of_every_table_are_documented_with_their_types() -> None:
    documented = {name: columns for name, columns in table("table", "columns")}  # noqa: C416 - rows are of any length
    assert documented == {
        name: ", ".join(f"`{column.name}` {column.dataType.simpleString()}" for column in columns)
        for name, columns in TABLES.items()
    }


def test_the_columns_of_the_tables_of_the_lake_are_documented() -> None:
    documented = {
        name: re.findall(r"`(\w+)`", columns)
        for name, _, columns in table("table of the lake", "one row per", "columns")
    }
    assert documented == {
        "metrics": metrics.MINUTES.names,
        "consumers": consumers.HOURS.names,
        "facts": [*facts.FACTS.names, "round"],
        "open": facts.OPEN.names,
        "baselines": ["round", *profiles.TALLIES.names],
        "profiles": PROFILES.names,
        "bands": BANDS.names,
        "anomalies": [*FINDINGS.names, "date"],
    }


def test_the_columns_that_the_sink_takes_are_documented_with_their_types() -> None:
    documented = [(name, kind.replace("`", "")) for name, kind, _ in table("column", "type", "")]
    assert documented == [(name, kind) for name, (kind, _) in sink_rows.COLUMNS.items()]


def test_the_arguments_of_every_job_are_documented() -> None:
    documented = {job: set(re.findall(r"`(\w+)`", names)) for job, names in table("job", "arguments beside `lake`")}
    assert documented.keys() == {*ALL, "replay", "verify", "forget", "simulate"}
    for job, names in documented.items():
        args: Any = getattr(import_module(f"tarry.edges.spark.jobs.{job}"), f"{job.capitalize()}Args")
        assert names | {"lake"} == {field.name for field in dataclasses.fields(args)} | {"lake"}, job


def test_the_examples_work_as_documented_and_no_plan_has_the_password(
    spark: SparkSession, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They read, write and stream with a DSN as an option."""
    dsn = make_conninfo(database, password=SECRET)
    monkeypatch.setenv("TARRY_DSN", dsn)
    monkeypatch.chdir(tmp_path)
    reader = Reader(SPARK_PAGE, dsn, tmp_path, os.environ)
    try:
        for block in blocks(SPARK_PAGE):
            reader.run_block(block)
    finally:
        reader.close()
    assert spark.range(1).count() == 1, "the session that was running is left running"
    shown: Any = cast("Any", spark)._jsparkSession.sharedState().statusStore().executionsList()
    plans = [shown.apply(n).physicalPlanDescription() for n in range(shown.size())]
    assert sum("tarry" in plan for plan in plans) >= 3, "as the UI shows them"
    assert not [plan for plan in plans if SECRET in plan]
