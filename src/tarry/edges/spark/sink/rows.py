# pyright: basic
"""Converts rows of a data frame to rows for staging: options, columns, and the same checks as any offer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from tarry.core import limits
from tarry.core.codecs import BYTES, JSON, PLAIN, TEXT
from tarry.core.errors import InvalidInput, InvalidPayload
from tarry.core.sinking import StagedRow, Trouble
from tarry.edges.spark.sink_options import PayloadFormat, SinkOptions
from tarry.handles.drafting import fresh_key

if TYPE_CHECKING:
    from pyarrow import Array, RecordBatch

T = TypeVar("T")

Encoded = tuple[bytes, str | None]

_WHOLE = (ByteType, ShortType, IntegerType, LongType)
_NUMBERS = (*_WHOLE, FloatType, DoubleType, DecimalType)
COLUMNS: dict[str, tuple[str, tuple[type[DataType], ...]]] = {
    "queue": ("string", (StringType,)),
    "key": ("string", (StringType,)),
    "payload": ("binary, string, or anything that JSON can say", (DataType,)),
    "content_type": ("string", (StringType,)),
    "due_at": ("timestamp", (TimestampType,)),
    "delay_s": ("a number of seconds", _NUMBERS),
    "priority": ("a whole number", _WHOLE),
    "type": ("string", (StringType,)),
    "headers": ("map<string,string>, or string with JSON in it", (MapType, StringType)),
    "max_attempts": ("a whole number", _WHOLE),
}
_LATEST_US = (datetime.max.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
_EARLIEST_US = (datetime.min.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


class RowReader:
    """Validates and converts record batches. Created where the write is planned, so that an unusable schema fails
    early.
    """

    def __init__(self, schema: StructType, options: SinkOptions) -> None:
        kinds = {column.name: column.dataType for column in schema.fields}
        _check_columns(kinds, options)
        _encoder(kinds["payload"], options.payload_format)
        self._options = options
        self._kinds = {name: kind for name, kind in kinds.items() if not isinstance(kind, NullType)}

    def read(self, batch: RecordBatch, part: int, first: int) -> tuple[Iterable[StagedRow], Trouble]:
        """The rows, or their faults; `first` is the number of the first row, used to locate faults."""
        n = batch.num_rows
        values = {name: batch.column(name) for name in self._kinds}
        faults: dict[int, str] = {}
        column = partial(_checked, faults, n)
        queue = self._options.queue
        queues = [queue] * n if queue is not None else column(_texts(values.get("queue")), _name_check())
        keys = column(_texts(values.get("key")), _key)
        bodies, content_types = self._payloads(values, column)
        dues, delays = _times(values, column, faults)
        priorities = column(_plain(values.get("priority")), _priority)
        types = column(_texts(values.get("type")), limits.check_type)
        headers = column(_plain(values.get("headers")), _headers)
        attempts = column(_plain(values.get("max_attempts")), limits.check_max_attempts)
        if faults:
            return (), _trouble(faults, part, first, queues, _texts(values.get("key")))
        columns = (queues, keys, bodies, content_types, dues, delays, priorities, types, headers, attempts)
        return zip(*columns, strict=True), Trouble()

    def _payloads(self, values: Mapping[str, Array], column: Callable[..., list[Any]]) -> tuple[list[Any], list[Any]]:
        encode = _encoder(self._kinds.get("payload", NullType()), self._options.payload_format)
        limit = self._options.payload_limit

        def checked(value: Any) -> Encoded:
            if value is None:
                raise InvalidPayload("the payload is null")
            body, content_type = encode(value)
            return limits.check_payload_size(body, limit), content_type

        encoded: list[Encoded | None] = column(_payload_values(values.get("payload")), checked)
        content_types = (
            column(_texts(values["content_type"]), limits.check_type)
            if "content_type" in values
            else [each and each[1] for each in encoded]
        )
        return [each and each[0] for each in encoded], content_types


def _check_columns(kinds: Mapping[str, DataType], options: SinkOptions) -> None:
    for name, kind in kinds.items():
        if name not in COLUMNS:
            raise InvalidInput(
                f"the sink knows no column {name!r}", hint=f"it knows {', '.join(COLUMNS)}; drop the others"
            )
        wanted, allowed = COLUMNS[name]
        if not isinstance(kind, (*allowed, NullType)):
            raise InvalidInput(f"the column {name} must be {wanted}, not {kind.simpleString()}")
    if "payload" not in kinds:
        raise InvalidInput("the sink needs a column payload", hint="struct(…).alias('payload') becomes a JSON object")
    if ("queue" in kinds) == (options.queue is not None):
        raise InvalidInput("say where the rows go: by a column queue, or for all of them by the option queue")
    if "content_type" in kinds and not (isinstance(kinds["payload"], BinaryType) and options.payload_format is None):
        raise InvalidInput("the column content_type is for binary payloads, which are taken as they are")


def _encoder(kind: DataType, wanted: PayloadFormat | None) -> Callable[[Any], Encoded]:
    if isinstance(kind, BinaryType):
        return _json_text if wanted is PayloadFormat.JSON else _text_bytes if wanted is PayloadFormat.TEXT else _bytes
    if isinstance(kind, StringType) and wanted is not PayloadFormat.BINARY:
        return _json_text if wanted is PayloadFormat.JSON else _text
    if isinstance(kind, StringType) or wanted not in (None, PayloadFormat.JSON):
        raise InvalidInput(f"payload_format={wanted} does not fit a payload of {kind.simpleString()}")
    return _as_json


def _bytes(value: bytes) -> Encoded:
    return value, BYTES


def _text(value: str) -> Encoded:
    return _utf8(value).encode(), TEXT


def _text_bytes(value: bytes) -> Encoded:
    return PLAIN.decode(value, TEXT).encode(), TEXT


def _json_text(value: str | bytes) -> Encoded:
    """JSON decoded and encoded again: equal values must give equal bytes, as with any other offer."""
    return _as_json(PLAIN.decode(value.encode() if isinstance(value, str) else value, None))


def _as_json(value: Any) -> Encoded:
    # A bare string would be encoded as text.
    return (msgspec.json.encode(value), JSON) if isinstance(value, str) else PLAIN.encode(value)


def _utf8(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidPayload("the text is not valid UTF-8")
    return value


def _name_check() -> Callable[[Any], str]:
    known: set[str] = set()

    def check(name: Any) -> str:
        if name in known:
            return name
        if name is None:
            raise InvalidInput("the queue is null")
        known.add(limits.check_queue_name(name))
        return name

    return check


def _key(key: str | None) -> str:
    return fresh_key() if key is None else limits.check_key(key)


def _priority(value: int | None) -> int:
    return 0 if value is None else limits.check_priority(value)


def _headers(value: Any) -> bytes | None:
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except msgspec.MsgspecError as error:
            raise InvalidInput(f"the headers are not JSON: {error}") from None
    checked = limits.check_headers(value)
    return msgspec.json.encode(dict(checked)) if checked else None


def _delay(value: Any) -> float | None:
    if value is None:
        return None
    try:
        return limits.check_delay(timedelta(seconds=float(value)), "delay_s").total_seconds()
    except (ValueError, OverflowError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"delay_s must be between 0 and 10 years, not {value!r:.80}") from None


def _due(value: int | None) -> int | None:
    if value is not None and not _EARLIEST_US <= value <= _LATEST_US:
        raise InvalidInput("due_at is beyond the calendar, which ends with the year 9999")
    return value


def _times(
    values: Mapping[str, Array], column: Callable[..., list[Any]], faults: dict[int, str]
) -> tuple[list[int | None], list[float | None]]:
    dues = column(_microseconds(values.get("due_at")), _due)
    delays = column(_plain(values.get("delay_s")), _delay)
    if "due_at" in values and "delay_s" in values:
        for index, (due, delay) in enumerate(zip(dues, delays, strict=True)):
            if due is not None and delay is not None:
                faults.setdefault(index, "give either due_at or delay_s, not both")
    return dues, delays


def _payload_values(array: Array | None) -> list[Any] | None:
    return None if array is None else _texts(array) if _is_text(array.type) else _plain(array)


def _plain(array: Array | None) -> list[Any] | None:
    return None if array is None else array.to_pylist(maps_as_pydicts="strict")


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _texts(array: Array | None) -> list[Any] | None:
    """Texts of a column. Spark strings may hold any bytes: a value that is not UTF-8 stays bytes and fails a later
    check.
    """
    if array is None:
        return None
    try:
        return array.to_pylist()
    except UnicodeDecodeError:
        return [_decoded(value) for value in array.cast(pa.large_binary()).to_pylist()]


def _decoded(value: bytes | None) -> Any:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return value


def _microseconds(array: Array | None) -> list[int | None] | None:
    return None if array is None else array.cast("int64").to_pylist()


def _checked(faults: dict[int, str], n: int, values: Sequence[Any] | None, check: Callable[[Any], T]) -> list[Any]:
    """A column after its check. The fault of a row is recorded, and the remaining rows are still checked."""
    if values is None:
        values = [None] * n
    try:
        return [check(value) for value in values]
    except InvalidInput:
        pass
    found: list[Any] = []
    for index, value in enumerate(values):
        try:
            found.append(check(value))
        except InvalidInput as error:
            faults.setdefault(index, str(error))
            found.append(None)
    return found


def _trouble(
    faults: Mapping[int, str], part: int, first: int, queues: Sequence[Any], keys: Sequence[Any] | None
) -> Trouble:
    samples = Trouble()
    for index, fault in sorted(faults.items()):
        who = (
            f"queue {queues[index]!r:.120}, key {keys[index]!r:.80}"
            if keys is not None
            else f"queue {queues[index]!r:.120}"
        )
        samples += Trouble(1, (f"row {first + index} of partition {part} ({who}): {fault}",))
    return samples
