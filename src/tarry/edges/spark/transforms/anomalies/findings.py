# pyright: basic
"""The row that a detector returns, and helpers to build it."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    DoubleType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tarry.edges.spark.transforms.instants import HOUR, truncated

FOUND = StructType(
    [
        StructField("detector", StringType()),
        StructField("detector_version", IntegerType()),
        StructField("severity", StringType()),
        StructField("queue_id", IntegerType()),
        StructField("queue", StringType()),
        StructField("key", StringType()),
        StructField("consumer", StringType()),
        StructField("window_from", TimestampType()),
        StructField("window_to", TimestampType()),
        StructField("sentence", StringType()),
        StructField("observed", DoubleType()),
        StructField("expected_low", DoubleType()),
        StructField("expected_high", DoubleType()),
        StructField("score", DoubleType()),
        StructField("evidence", StringType()),
        StructField("fingerprint", StringType()),
    ]
)
"""`fingerprint` is stable across runs: the same anomaly is raised once."""

_REQUIRED = ("queue_id", "queue", "window_from", "window_to", "sentence")


def completed(frame: DataFrame, *, name: str, version: int, severity: str) -> DataFrame:
    """The frame of a detector with all columns of `FOUND`.

    A detector must return queue_id, queue, window_from, window_to and sentence. Other missing columns become null;
    `evidence` defaults to the journal of the queue in the window. `identity` (text) identifies the anomaly across runs;
    it defaults to the key, the consumer and the start.
    """
    missing = [column for column in _REQUIRED if column not in frame.columns]
    if missing:
        raise ValueError(f"detector {name} returns no column {', '.join(missing)}")
    given = set(frame.columns)

    def or_null(field: StructField) -> Column:
        value = F.col(field.name) if field.name in given else F.lit(None)
        return value.cast(field.dataType).alias(field.name)

    sayings = {
        "detector": F.lit(name),
        "detector_version": F.lit(version),
        "severity": F.lit(severity),
        "evidence": F.col("evidence") if "evidence" in given else journal_of("key" if "key" in given else None),
    }
    said = frame.withColumns(sayings).withColumn(
        "_identity", F.col("identity") if "identity" in given else _place(given)
    )
    given |= sayings.keys()
    parts = [F.col("detector"), F.col("queue_id").cast("string"), F.col("_identity")]
    fingerprint = F.sha2(F.concat_ws("|", *parts), 256).substr(1, 32)
    return said.withColumn("fingerprint", fingerprint).select(
        *(or_null(field) for field in FOUND.fields if field.name != "fingerprint"), "fingerprint"
    )


def _place(given: set[str]) -> Column:
    known = [F.coalesce(F.col(name), F.lit("")) for name in ("key", "consumer") if name in given]
    return F.concat_ws("|", *known, F.unix_micros("window_from").cast("string"))


def limited(frame: DataFrame, most: int) -> DataFrame:
    """At most `most` rows per queue and hour, the first ones; the last of them states how many more there were.

    `frame` has `id`, a stable order, so that every run keeps the same rows.
    """
    of_hour = Window.partitionBy("queue_id", truncated(F.col("window_from"), HOUR))
    ranked = frame.withColumns(
        {"_rank": F.row_number().over(of_hour.orderBy("id")), "_all": F.count(F.lit(1)).over(of_hour)}
    ).where(F.col("_rank") <= most)
    more = F.when(
        (F.col("_rank") == most) & (F.col("_all") > most),
        F.format_string(" There were %d more in this hour.", F.col("_all") - most),
    )
    return ranked.withColumn("sentence", F.concat("sentence", F.coalesce(more, F.lit("")))).drop("_rank", "_all")


def quoted(text: Column) -> Column:
    """An SQL string literal."""
    return F.concat(F.lit("'"), F.replace(text, F.lit("'"), F.lit("''")), F.lit("'"))


def instant(at: Column) -> Column:
    """An SQL timestamp literal with its zone, independent of the session that runs it."""
    return F.concat(F.lit("'"), utc(at, "yyyy-MM-dd HH:mm:ss.SSSSSS"), F.lit("+00'"))


def utc(at: Column, pattern: str) -> Column:
    """Text in UTC, independent of the session's time zone."""
    seconds = (F.unix_micros(at) / 1_000_000).cast("decimal(18,6)")
    return F.date_format(F.expr("timestamp_ntz '1970-01-01 00:00:00'") + F.make_dt_interval(secs=seconds), pattern)


def journal_of(key: str | None = None, *conditions: str) -> Column:
    """A query for the journal of a queue (or of one key) in the window, extended by one minute on both sides."""
    parts = [
        F.lit("select * from tarry.journal where queue = "),
        quoted(F.col("queue")),
        F.lit(" and at >= "),
        instant(F.col("window_from") - F.expr("interval 1 minute")),
        F.lit(" and at <= "),
        instant(F.col("window_to") + F.expr("interval 1 minute")),
    ]
    if key is not None:
        parts += [F.coalesce(F.concat(F.lit(" and key = "), quoted(F.col(key))), F.lit(""))]
    parts += [F.lit(f" and {condition}") for condition in conditions]
    return F.concat(*parts, F.lit(" order by id"))


def history_of_key() -> Column:
    """A query for the events of a message, from its offer on."""
    return F.concat(
        F.lit("select * from tarry.journal where queue = "), quoted(F.col("queue")),
        F.lit(" and key = "), quoted(F.col("key")), F.lit(" order by id"),
    )  # fmt: skip


def duration(seconds: Column) -> Column:
    """Human-readable: 12 ms, 3.4 s, 5 min, 2.5 h. Null stays null, which `format_string` alone would not do."""
    return (
        F.when(seconds < 1, F.format_string("%.0f ms", seconds * 1000))
        .when(seconds < 120, F.format_string("%.1f s", seconds))
        .when(seconds < 7200, F.format_string("%.0f min", seconds / 60))
        .when(seconds >= 7200, F.format_string("%.1f h", seconds / 3600))
    )


def number(value: Column) -> Column:
    """Decimals only for small fractions. Null stays null."""
    exact, fraction = value.cast("double"), (F.abs(value) < 10) & (value != F.floor(value))
    return F.when(fraction, F.format_string("%.1f", exact)).when(value.isNotNull(), F.format_string("%,.0f", exact))


def somebody(consumer: str = "consumer") -> Column:
    return F.coalesce(F.concat(F.lit("consumer "), F.col(consumer)), F.lit("a consumer without a name"))
