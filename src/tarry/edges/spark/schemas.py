"""The column definitions of everything that Spark reads and writes."""

from __future__ import annotations

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)


def _struct(*columns: tuple[str, DataType]) -> StructType:
    return StructType([StructField(name, kind, nullable=True) for name, kind in columns])


EVENTS = _struct(
    ("id", LongType()),
    ("xid", LongType()),
    ("at", TimestampType()),
    ("kind", StringType()),
    ("queue_id", IntegerType()),
    ("queue", StringType()),
    ("key", StringType()),
    ("version", LongType()),
    ("attempt", IntegerType()),
    ("priority", IntegerType()),
    ("due_at", TimestampType()),
    ("leased_at", TimestampType()),
    ("lease_until", TimestampType()),
    ("consumer", StringType()),
    ("size", IntegerType()),
    ("payload_hash", BinaryType()),
    ("error", StringType()),
    ("detail", StringType()),
    ("payload", BinaryType()),
)
"""The journal. `detail` is JSON text; `xid` is the transaction id as a number, to group the events of one operation."""

MESSAGES = _struct(
    ("queue_id", IntegerType()),
    ("queue", StringType()),
    ("key", StringType()),
    ("version", LongType()),
    ("state", StringType()),
    ("attempt", IntegerType()),
    ("priority", IntegerType()),
    ("due_at", TimestampType()),
    ("created_at", TimestampType()),
    ("lease_until", TimestampType()),
    ("consumer", StringType()),
    ("type", StringType()),
    ("content_type", StringType()),
    ("headers", StringType()),
    ("last_error", StringType()),
    ("payload", BinaryType()),
)
"""Live messages, as of the time of reading."""

DEAD_LETTERS = _struct(
    ("queue_id", IntegerType()),
    ("queue", StringType()),
    ("key", StringType()),
    ("version", LongType()),
    ("attempt", IntegerType()),
    ("priority", IntegerType()),
    ("due_at", TimestampType()),
    ("died_at", TimestampType()),
    ("reason", StringType()),
    ("error", StringType()),
    ("type", StringType()),
    ("content_type", StringType()),
    ("headers", StringType()),
    ("payload", BinaryType()),
)

TABLES = {"events": EVENTS, "messages": MESSAGES, "dead_letters": DEAD_LETTERS}
