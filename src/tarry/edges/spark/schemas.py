"""Column definitions of the tables that Spark reads and writes."""

from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.types import DataType, StructField, StructType

_TYPES: dict[str, DataType] = {
    "binary": T.BinaryType(),
    "boolean": T.BooleanType(),
    "date": T.DateType(),
    "double": T.DoubleType(),
    "int": T.IntegerType(),
    "long": T.LongType(),
    "string": T.StringType(),
    "timestamp": T.TimestampType(),
}


def struct(columns: str, **nested: DataType) -> StructType:
    """A schema from `name type, …`, with `nested` types by column name; needs no running Spark."""
    pairs = (column.split() for column in columns.split(","))
    return StructType([StructField(name, nested[name] if name in nested else _TYPES[kind]) for name, kind in pairs])


EVENTS = struct(
    "id long, xid long, at timestamp, kind string, queue_id int, queue string, key string, version long, attempt int, "
    "priority int, due_at timestamp, leased_at timestamp, lease_until timestamp, consumer string, size int, "
    "payload_hash binary, error string, detail string, payload binary"
)
"""The journal. `detail` is JSON text; `xid` is the transaction id as a number, to group the events of one operation."""

MESSAGES = struct(
    "queue_id int, queue string, key string, version long, state string, attempt int, priority int, due_at timestamp, "
    "created_at timestamp, lease_until timestamp, consumer string, type string, content_type string, headers string, "
    "last_error string, payload binary"
)
"""Live messages, as of the time of reading."""

DEAD_LETTERS = struct(
    "queue_id int, queue string, key string, version long, attempt int, priority int, due_at timestamp, "
    "died_at timestamp, reason string, error string, type string, content_type string, headers string, payload binary"
)

TABLES = {"events": EVENTS, "messages": MESSAGES, "dead_letters": DEAD_LETTERS}
