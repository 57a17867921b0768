# pyright: basic
"""Converts data frame rows to rows for staging, with the same checks as any offer."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import msgspec
import pyarrow as pa
from pyarrow import Array, RecordBatch
from pyspark.sql import types as T  # noqa: N812

from tarry.api.drafts import fresh_key, fresh_keys
from tarry.core import limits
from tarry.core.analytics.bulk_offer import InvalidRows, StagedRow
from tarry.core.codecs import BYTES, JSON, PLAIN, TEXT
from tarry.core.errors import InvalidInput, InvalidPayload
from tarry.edges.spark.sink.options import PayloadFormat, SinkOptions

Encoded = tuple[bytes, str | None]

_WHOLE = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_NUMBERS = (*_WHOLE, T.FloatType, T.DoubleType, T.DecimalType)
COLUMNS: dict[str, tuple[str, tuple[type[T.DataType], ...]]] = {
    "queue": ("string", (T.StringType,)),
    "key": ("string", (T.StringType,)),
    "payload": ("binary, string, or any type that JSON can represent", (T.DataType,)),
    "content_type": ("string", (T.StringType,)),
    "due_at": ("timestamp", (T.TimestampType,)),
    "after_s": ("a number of seconds", _NUMBERS),
    "priority": ("a whole number", _WHOLE),
    "type": ("string", (T.StringType,)),
    "headers": ("map<string,string>, or string with JSON", (T.MapType, T.StringType)),
    "max_attempts": ("a whole number", _WHOLE),
}
_LATEST_US = (datetime.max.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
_EARLIEST_US = (datetime.min.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


class RowReader:
    """Validates and converts record batches. An unusable schema fails where the write is planned."""

    def __init__(self, schema: T.StructType, options: SinkOptions) -> None:
        kinds = {column.name: column.dataType for column in schema.fields}
        _check_columns(kinds, options)
        self._encode = _encoder(kinds["payload"], options.payload_format)
        self._options = options
        self._kinds = {name: kind for name, kind in kinds.items() if not isinstance(kind, T.NullType)}

    def read(self, batch: RecordBatch, part: int, first: int) -> tuple[Iterable[StagedRow], InvalidRows]:
        """The rows, or their faults; `first` is the number of the first row, for fault messages."""
        n = batch.num_rows
        values = {name: _values(batch.column(name), name) for name in self._kinds}
        faults: dict[int, str] = {}

        def column(name: str, check: Callable[[Any], Any]) -> list[Any]:
            return _checked(faults, values[name], check) if name in values else [check(None)] * n

        queue = self._options.queue
        queues = [queue] * n if queue is not None else column("queue", _queue)
        keys = column("key", _key) if "key" in values else fresh_keys(n)
        payloads = column("payload", self._payload)
        bodies, content_types = ([each and each[index] for each in payloads] for index in (0, 1))
        if "content_type" in values:
            content_types = column("content_type", limits.check_type)
        dues, afters = column("due_at", _due), column("after_s", _after)
        for index, both in enumerate(zip(dues, afters, strict=True)):
            if None not in both:
                faults.setdefault(index, "give either due_at or after_s, not both")
        priorities = column("priority", lambda value: 0 if value is None else limits.check_priority(value))
        types = column("type", limits.check_type)
        headers = column("headers", _headers)
        attempts = column("max_attempts", limits.check_max_attempts)
        if faults:
            return (), _invalid_rows(faults, part, first, queues, values.get("key"))
        generated = [key is None for key in values["key"]] if "key" in values else [True] * n
        columns = (queues, keys, bodies, content_types, dues, afters, priorities, types, headers, attempts, generated)
        return zip(*columns, strict=True), InvalidRows()

    def _payload(self, value: Any) -> Encoded:
        if value is None:
            raise InvalidPayload("the payload is null")
        body, content_type = self._encode(value)
        return limits.check_payload_size(body, self._options.payload_limit), content_type


def _check_columns(kinds: Mapping[str, T.DataType], options: SinkOptions) -> None:
    for name, kind in kinds.items():
        if name not in COLUMNS:
            raise InvalidInput(
                f"the sink knows no column {name!r}", hint=f"it knows {', '.join(COLUMNS)}; drop the others"
            )
        expected, allowed = COLUMNS[name]
        if not isinstance(kind, (*allowed, T.NullType)):
            raise InvalidInput(f"the column {name} must be {expected}, not {kind.simpleString()}")
    if "payload" not in kinds:
        raise InvalidInput("the sink needs a column payload", hint="struct(…).alias('payload') becomes a JSON object")
    if ("queue" in kinds) == (options.queue is not None):
        raise InvalidInput("the rows need a queue: give either a column queue, or the option queue for all rows")
    if "content_type" in kinds and not (isinstance(kinds["payload"], T.BinaryType) and options.payload_format is None):
        raise InvalidInput("the column content_type is for binary payloads, which are taken as they are")


def _encoder(kind: T.DataType, format: PayloadFormat | None) -> Callable[[Any], Encoded]:
    if isinstance(kind, T.BinaryType):
        return _json_text if format is PayloadFormat.JSON else _text if format is PayloadFormat.TEXT else _bytes
    if isinstance(kind, T.StringType) and format is not PayloadFormat.BINARY:
        return _json_text if format is PayloadFormat.JSON else _text
    if isinstance(kind, T.StringType) or format not in (None, PayloadFormat.JSON):
        raise InvalidInput(f"payload_format={format} does not fit a payload of {kind.simpleString()}")
    return _as_json


def _bytes(value: bytes) -> Encoded:
    return value, BYTES


def _text(value: str | bytes) -> Encoded:
    return (value if isinstance(value, str) else PLAIN.decode(value, TEXT)).encode(), TEXT


def _json_text(value: str | bytes) -> Encoded:
    """JSON, decoded and encoded again: equal values must give equal bytes, as in any other offer."""
    return _as_json(PLAIN.decode(value.encode() if isinstance(value, str) else value, None))


def _as_json(value: Any) -> Encoded:
    # A bare string would be encoded as text.
    return (msgspec.json.encode(value), JSON) if isinstance(value, str) else PLAIN.encode(value)


@lru_cache(maxsize=1_000)
def _queue(name: Any) -> str:
    if name is None:
        raise InvalidInput("the queue is null")
    return limits.check_queue_name(name)


def _key(value: Any) -> str:
    return fresh_key() if value is None else limits.check_key(value)


def _headers(value: Any) -> bytes | None:
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except msgspec.MsgspecError as error:
            raise InvalidInput(f"the headers are not JSON: {error}") from None
    checked = limits.check_headers(value)
    return msgspec.json.encode(dict(checked)) if checked else None


def _after(value: Any) -> float | None:
    if value is None:
        return None
    try:
        return limits.check_delay(timedelta(seconds=float(value)), "after_s").total_seconds()
    except (ValueError, OverflowError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"after_s must be between 0 and 10 years, not {value!r:.80}") from None


def _due(value: int | None) -> int | None:
    if value is not None and not _EARLIEST_US <= value <= _LATEST_US:
        raise InvalidInput("due_at is beyond the calendar, which ends with the year 9999")
    return value


def _values(array: Array, name: str) -> list[Any]:
    """The values of a column. Spark strings may contain any bytes: text that is not UTF-8 fails a later check."""
    if name == "due_at":
        return array.cast("int64").to_pylist()
    try:
        return array.to_pylist(maps_as_pydicts="strict")
    except UnicodeDecodeError:
        if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
            raise
        return [_decoded(value) for value in array.cast(pa.large_binary()).to_pylist()]


def _decoded(value: bytes | None) -> str | bytes | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return value


def _checked(faults: dict[int, str], values: Sequence[Any], check: Callable[[Any], Any]) -> list[Any]:
    """A column after its check. The fault of a row is recorded, and the remaining rows are still checked."""
    try:
        return [check(value) for value in values]
    except InvalidInput:
        pass
    checked: list[Any] = []
    for index, value in enumerate(values):
        try:
            checked.append(check(value))
        except InvalidInput as error:
            faults.setdefault(index, error.message)
            checked.append(None)
    return checked


def _invalid_rows(
    faults: Mapping[int, str], part: int, first: int, queues: Sequence[Any], keys: Sequence[Any] | None
) -> InvalidRows:
    samples = InvalidRows()
    for index, fault in sorted(faults.items()):
        key = "" if keys is None else f", key {keys[index]!r:.80}"
        samples += InvalidRows(
            1, (f"row {first + index} of partition {part} (queue {queues[index]!r:.120}{key}): {fault}",)
        )
    return samples
