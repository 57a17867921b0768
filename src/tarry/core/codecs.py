"""Payloads to bytes and back. JSON by default; text and bytes unchanged; typed by annotation; never pickle.

The content type is stored with the payload; None stands for JSON. Equal values give equal bytes (keys are sorted),
because the bytes decide whether an offer changes a message."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from math import isfinite
from typing import Any, Generic, TypeVar, cast

import msgspec

from tarry.core.errors import InvalidPayload
from tarry.core.limits import JSON_DEPTH

P = TypeVar("P")

JSON = None
TEXT = "text/plain"
BYTES = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Codec(Generic[P]):
    encode: Callable[[P], tuple[bytes, str | None]]
    decode: Callable[[bytes, str | None], P]


def codec_for(payload_type: type[P] | None = None) -> Codec[P]:
    """The codec for a payload annotation; without one, by the type of the value."""
    if payload_type is None or payload_type in (object, Any):
        return cast("Codec[P]", PLAIN)
    if payload_type is bytes:
        return cast("Codec[P]", Codec(_encode_bytes, lambda data, content_type: data))
    if payload_type is str:
        return cast("Codec[P]", Codec(_encode_text, _decode_text))
    if hasattr(payload_type, "model_validate_json"):
        return _pydantic_codec(payload_type)
    return _typed_codec(payload_type)


def _encode_plain(value: Any) -> tuple[bytes, str | None]:
    if isinstance(value, bytes):
        return value, BYTES
    if isinstance(value, str):
        return _encode_text(value)
    return _json_bytes(value), JSON


def _encode_bytes(value: bytes) -> tuple[bytes, str | None]:
    if not isinstance(value, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidPayload(f"this queue carries bytes, not {type(value).__name__}")
    return value, BYTES


def _encode_text(value: str) -> tuple[bytes, str | None]:
    if not isinstance(value, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidPayload(f"this queue carries text, not {type(value).__name__}")
    try:
        return value.encode(), TEXT
    except UnicodeEncodeError as error:
        raise InvalidPayload("the text is not valid Unicode (lone surrogate)") from error


def _decode_text(data: bytes, content_type: str | None) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidPayload(f"the payload is not UTF-8 text: {error}") from error


def _typed_codec(payload_type: type[P]) -> Codec[P]:
    """Dataclasses, msgspec structs, typed dicts, lists and numbers: all types that msgspec can validate."""
    try:
        decoder = msgspec.json.Decoder(payload_type)
        _check_type(payload_type)
    except (TypeError, ValueError) as error:
        raise InvalidPayload(
            f"payloads of type {payload_type!r} cannot be checked: {error}",
            hint="use a dataclass, a pydantic model, a msgspec struct, str, bytes or plain JSON values",
        ) from error

    def encode(value: P) -> tuple[bytes, str | None]:
        try:
            data = _json_bytes(value)
            decoder.decode(data)  # reject values that do not survive a round trip
            return data, JSON
        except (TypeError, msgspec.MsgspecError) as error:
            raise InvalidPayload(f"a {type(value).__name__} cannot be encoded: {error}") from error

    return Codec(encode, _decode_with(decoder.decode, f"a {_name(payload_type)}"))


@lru_cache(maxsize=256)
def _check_type(payload_type: Any) -> None:
    """Reject plain classes, nested ones included: msgspec would reject them only at the first message."""

    def refuse(plain: type[Any]) -> Any:
        raise TypeError(f"{plain.__name__} is a plain class, whose fields are not known")

    msgspec.json.schema(payload_type, schema_hook=refuse)


def _pydantic_codec(payload_type: type[P]) -> Codec[P]:
    """Calls only methods of the model: pydantic is not a dependency."""

    def encode(value: P) -> tuple[bytes, str | None]:
        if not isinstance(value, payload_type):
            raise InvalidPayload(f"this queue carries {_name(payload_type)}, not {type(value).__name__}")
        try:
            dump = cast("Any", value).model_dump
            return _json_bytes(_ordered(dump(by_alias=True), dump(mode="json", by_alias=True))), JSON
        except InvalidPayload:
            raise
        except ValueError as error:
            raise InvalidPayload(f"a {_name(payload_type)} cannot be encoded: {error}") from error

    return Codec(encode, _decode_with(cast("Any", payload_type).model_validate_json, f"a {_name(payload_type)}"))


def _decode_with(decode: Callable[[bytes], P], what: str) -> Callable[[bytes, str | None], P]:
    def checked(data: bytes, content_type: str | None) -> P:
        try:
            return decode(data)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise InvalidPayload(f"the payload is not {what}: {error}") from error

    return checked


def _ordered(value: Any, dumped: Any) -> Any:
    """`dumped`, with the elements of former sets in a canonical order, so that equal sets give equal bytes."""
    if isinstance(value, (set, frozenset)):
        return sorted(cast("list[Any]", dumped), key=_ENCODER.encode)
    inside, dumped_inside = list(_inside(value)), list(_inside(dumped))
    if not inside or len(inside) != len(dumped_inside):
        return dumped  # a scalar, or pydantic is configured to write another shape
    ordered = list(map(_ordered, inside, dumped_inside))
    return dict(zip(cast("dict[Any, Any]", dumped), ordered, strict=True)) if isinstance(dumped, dict) else ordered


def _name(payload_type: type[Any]) -> str:
    return getattr(payload_type, "__name__", repr(payload_type))


_ENCODER = msgspec.json.Encoder(order="deterministic")


def _json_bytes(value: Any) -> bytes:
    """JSON bytes. Values without a JSON type are written as text if there is one way to (a datetime, a UUID, an Enum);
    a typed queue converts them back. NaN is rejected: msgspec would write null."""
    try:
        data = _ENCODER.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidPayload(
            f"the payload cannot be written as JSON: {error}", hint="annotate the queue: app.queue(name, PayloadType)"
        ) from error
    # Counting is cheap, recursion is not: only data with enough brackets can be too deep.
    brackets = data.count(b"{") + data.count(b"[") if len(data) > 2 * JSON_DEPTH else 0
    if brackets > JSON_DEPTH and _deeper_than(msgspec.json.decode(data), JSON_DEPTH):
        raise InvalidPayload(f"the payload is nested more than {JSON_DEPTH} levels deep")
    if b"null" in data and _has_nan(msgspec.to_builtins(value)):
        raise InvalidPayload("the payload cannot be written as JSON: it contains NaN or an infinite number")
    return data


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return cast("dict[Any, Any]", value).values()
    return cast("Iterable[Any]", value) if isinstance(value, (list, tuple)) else ()


def _levels(value: Any) -> Iterator[list[Any]]:
    """The values of each depth. Iterating by level is several times faster than recursion."""
    level: list[Any] = [value]
    while level:
        yield level
        level = [inner for item in level if isinstance(item, (dict, list, tuple)) and item for inner in _inside(item)]


def _has_nan(value: Any) -> bool:
    return any(isinstance(item, float) and not isfinite(item) for level in _levels(value) for item in level)


def _deeper_than(value: Any, levels: int) -> bool:
    """Whether a list or an object is nested deeper than `levels`."""
    return any(isinstance(item, (dict, list)) for level in islice(_levels(value), levels, levels + 1) for item in level)


_decode_json = _decode_with(msgspec.json.Decoder().decode, "JSON")


def _decode_plain(data: bytes, content_type: str | None) -> Any:
    if content_type is None or content_type == "application/json":
        return _decode_json(data, content_type)
    return _decode_text(data, content_type) if content_type.startswith("text/") else data


PLAIN: Codec[Any] = Codec(_encode_plain, _decode_plain)
