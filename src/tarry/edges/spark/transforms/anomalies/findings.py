# pyright: basic
"""The row that a detector returns, and helpers to build it."""

from __future__ import annotations

from collections.abc import Callable
from string import Formatter

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructField

from tarry.edges.spark.schemas import struct
from tarry.edges.spark.transforms.instants import HOUR, truncated

FINDINGS = struct(
    "detector string, detector_version int, severity string, queue_id int, queue string, key string, consumer string, "
    "window_from timestamp, window_to timestamp, sentence string, observed double, expected_low double, "
    "expected_high double, score double, evidence string, fingerprint string"
)
"""`fingerprint` is stable across runs: the same anomaly is raised once."""

_REQUIRED = ("queue_id", "queue", "window_from", "window_to", "sentence")


def completed(frame: DataFrame, *, name: str, version: int, severity: str) -> DataFrame:
    """The frame of a detector with all columns of `FINDINGS`.

    A detector must return queue_id, queue, window_from, window_to and sentence. Other missing columns become null;
    `evidence` defaults to the journal of the queue in the window. `identity` (text) identifies the anomaly across runs;
    it defaults to the key, the consumer and the start.
    """
    missing = [column for column in _REQUIRED if column not in frame.columns]
    if missing:
        raise ValueError(f"detector {name} returns no column {', '.join(missing)}")
    given = set(frame.columns)
    known = [F.coalesce(F.col(name), F.lit("")) for name in ("key", "consumer") if name in given]
    start = F.unix_micros("window_from").cast("string")
    named = frame.withColumns(
        {
            "detector": F.lit(name),
            "detector_version": F.lit(version),
            "severity": F.lit(severity),
            "evidence": F.col("evidence") if "evidence" in given else journal_of("key" if "key" in given else None),
            "identity": F.col("identity") if "identity" in given else F.concat_ws("|", *known, start),
        }
    )
    parts = F.concat_ws("|", "detector", F.col("queue_id").cast("string"), "identity")
    complete = named.withColumn("fingerprint", F.sha2(parts, 256).substr(1, 32))
    return complete.select(*(or_null(complete, field) for field in FINDINGS.fields))


def or_null(frame: DataFrame, field: StructField) -> Column:
    """The column of a schema; null if the frame does not have it."""
    value = F.col(field.name) if field.name in frame.columns else F.lit(None)
    return value.cast(field.dataType).alias(field.name)


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
    return ranked.withColumn("sentence", F.concat("sentence", or_nothing(more))).drop("_rank", "_all")


def filled(template: str, **values: Column) -> Column:
    """A sentence or a query; null if one of its values is null.

    `{name}` stands for the given value, or for the column of that name; `{name:form}` for its text in one of `_FORMS`.
    """
    parts: list[Column] = []
    for literal, name, form, _ in Formatter().parse(template):
        parts.append(F.lit(literal))
        if name is not None:
            value = values[name] if name in values else F.col(name)
            parts.append(_FORMS[form](value) if form else value)
    return F.concat(*parts)


def or_nothing(text: Column) -> Column:
    return F.coalesce(text, F.lit(""))


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
    return filled(
        "select * from tarry.journal where queue = {queue:sql} and at >= {since:instant} and at <= {until:instant}"
        "{key}{conditions} order by id",
        since=F.col("window_from") - F.expr("interval 1 minute"),
        until=F.col("window_to") + F.expr("interval 1 minute"),
        key=F.lit("") if key is None else or_nothing(filled(" and key = {key:sql}", key=F.col(key))),
        conditions=F.lit("".join(f" and {condition}" for condition in conditions)),
    )


def history_of_key() -> Column:
    """A query for the events of a message, from its offer on."""
    return filled("select * from tarry.journal where queue = {queue:sql} and key = {key:sql} order by id")


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


def named(consumer: Column) -> Column:
    return F.coalesce(F.concat(F.lit("consumer "), consumer), F.lit("a consumer without a name"))


_FORMS: dict[str, Callable[[Column], Column]] = {
    "instant": instant,
    "ms": lambda milliseconds: duration(milliseconds / 1000),
    "named": named,
    "number": number,
    "s": duration,
    "sql": quoted,
    "us": lambda microseconds: duration(microseconds / 1e6),
}
