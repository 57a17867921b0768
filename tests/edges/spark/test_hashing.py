"""Spark computes the hash of PostgreSQL for any event."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import psycopg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from tarry.app import App
from tarry.core.journal.events import EventKind
from tarry.edges.spark.lake.lake import FILE, event_hash
from tarry.edges.spark.source.reader import register
from tests.kit.spark import write_events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_every_column_of_an_event_is_part_of_its_hash(spark: SparkSession, pipeline_app: App) -> None:
    pipeline_app.queue("q").offer("a", 1)
    dsn = pipeline_app.dsn
    assert dsn is not None
    with psycopg.connect(dsn) as conn:
        write_events(conn, 200)
        _scatter(conn)
        conn.commit()
        expected = dict(conn.execute("select id, tarry.event_hash(e) from tarry.event e").fetchall())
    register(spark)
    events = spark.read.format("tarry").option("dsn", dsn).load().withColumnRenamed("queue", "queue_name").cache()
    columns = [field for field in FILE.fields if field.name not in ("id", "queue_name")]
    frames = {"": events} | {
        field.name: events.withColumn(field.name, F.lit(None).cast(field.dataType)) for field in columns
    }
    every = reduce(DataFrame.unionByName, [_hashes(name, frame) for name, frame in frames.items()]).collect()
    hashes = {name: {row.id: int(row.hash) for row in every if row.name == name} for name in frames}
    assert hashes[""] == {id: hash % 2**64 for id, hash in expected.items()}
    assert [name for name in frames if name and hashes[name] == hashes[""]] == []


def _hashes(name: str, events: DataFrame) -> DataFrame:
    return events.select(F.lit(name).alias("name"), "id", F.expr(event_hash()).alias("hash"))


def _scatter(conn: psycopg.Connection[Any]) -> None:
    """Every column with every kind of value, nulls among them."""
    conn.execute(
        """
        update tarry.event set
            kind = (%(kinds)s::text[])[1 + id %% %(n)s]::tarry.event_kind,
            key = case when id %% 7 > 0 then repeat(md5(id::text), (id %% 5)::int) || 'Grüße' end,
            version = case when id %% 3 > 0 then (id - 100) * 123456789012 end,
            attempt = case when id %% 4 > 0 then id - 50 end, priority = case when id %% 5 > 0 then id %% 10 end,
            size = case when id %% 6 > 0 then id * 1000 end,
            due_at = case when id %% 3 > 0 then '1950-01-01Z'::timestamptz + id * interval '1 year 1.000001 s' end,
            leased_at = case when id %% 4 > 0 then now() end, lease_until = case when id %% 5 > 0 then now() end,
            consumer = case when id %% 2 > 0 then 'c' || id %% 9 end,
            payload_hash = case when id %% 3 > 0 then substr(sha256(id::text::bytea), 1, 8) end,
            error = case when id %% 5 = 0 then repeat('boom ', id::int) end,
            detail = case when id %% 6 = 0 then jsonb_build_object('n', id, 'text', 'ü "x"') end,
            payload = case when id %% 7 = 0 then convert_to(repeat(id::text, (id * 10)::int), 'UTF8') end
        """,
        {"kinds": [kind.value for kind in EventKind], "n": len(EventKind)},
    )
