"""Base classes of wire structs: conversion to and from core values, validation, field types."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, timedelta
from enum import Enum
from functools import cache
from inspect import isfunction
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar, cast, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec
from msgspec import Meta, Struct

from tarry.core import limits
from tarry.core.durations import duration, exact, moment
from tarry.core.errors import InvalidInput
from tarry.core.messages.retry import Retry

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler

T = TypeVar("T")

MOST = 1_000
"""Maximum number of messages in a batch, or rows on a page."""


def data_of(value: Any) -> Any:
    """A value in its JSON form: instants as RFC 3339, durations in seconds, non-finite numbers as null."""
    if value is None or type(value) in (str, int, bool):
        return value
    if isinstance(value, datetime):
        return exact(value)
    if hasattr(value, "as_data"):
        return value.as_data()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: data_of(getattr(value, name)) for name in shown_fields(type(value))}
    if isinstance(value, tuple) and hasattr(cast("Any", value), "_asdict"):
        return data_of(cast("Any", value)._asdict())
    if isinstance(value, Mapping):
        return {str(data_of(key)): data_of(item) for key, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, (set, frozenset)):
        return sorted(data_of(item) for item in cast("Iterable[Any]", value))
    if isinstance(value, (list, tuple)):
        return [data_of(item) for item in cast("Iterable[Any]", value)]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (str, int, float, Struct)) else str(value)


def plain(value: Any) -> Any:
    """For msgspec's `enc_hook`: text or a number of a subclass, as its plain type."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    raise TypeError(f"{type(value).__name__} cannot be encoded")


@cache
def shown_fields(kind: type[Any]) -> tuple[str, ...]:
    """The fields of a dataclass that its `repr` shows (neither secrets nor fields for the store), and its `also_shown`."""
    return (*(field.name for field in dataclasses.fields(kind) if field.repr), *getattr(kind, "also_shown", ()))


def same_fields(value: Any, kind: type[Any], *without: str) -> dict[str, Any]:
    """The attributes of a value that `kind`, a struct or a dataclass, has as fields."""
    return {name: getattr(value, name) for name in _field_names(kind) if name not in without and hasattr(value, name)}


@cache
def _field_names(kind: type[Any]) -> tuple[str, ...]:
    if issubclass(kind, Struct):
        return kind.__struct_fields__
    return tuple(field.name for field in dataclasses.fields(kind))


class Wire(Struct, kw_only=True, omit_defaults=True):
    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> Any:
        from tarry.wire.openapi import schema_of

        return schema_of(cls, handler)


class Response(Wire):
    """An entity in a response. Fields that have their default value are omitted."""

    @classmethod
    def of(cls, value: Any, /, **fields: Any) -> Self:
        """The wire form of a core value: attributes of the same names, converted by type; `fields` replace them."""
        same = same_fields(value, cls, *fields)
        return cls(**{name: data_of(item) for name, item in same.items()}, **fields)

    def as_core(self, kind: type[T], /, **fields: Any) -> T:
        """The core value: fields of the same name, converted by the types of `kind`; `fields` replace them."""
        return msgspec.convert({**same_fields(self, type(self)), **fields}, kind, strict=False, from_attributes=True)


class Request(Wire, forbid_unknown_fields=True):
    """The body of a request. FastAPI validates it with a pydantic model derived from the struct; `parse` works without
    pydantic. Checks across fields belong in `__post_init__`."""

    @classmethod
    def of_core(cls, value: Any, /, **fields: Any) -> Self:
        """The request with the attributes of a core value of the same names; `fields` replace them."""
        return cls(**{**same_fields(value, cls), **fields})

    @classmethod
    def parse(cls, data: Any) -> Self:
        """Validate decoded JSON, which is modified. Raises `InvalidInput` or msgspec's ValidationError."""
        if not isinstance(data, dict):
            raise InvalidInput(f"expected an object, got {type(data).__name__}")
        data = cast("dict[str, Any]", data)
        for name, read in _readers(cls).items():
            if data.get(name) is not None:
                try:
                    data[name] = read(data[name])
                except InvalidInput as error:
                    raise InvalidInput(f"{name}: {error.message}", hint=error.hint) from None
        return msgspec.convert(data, cls)


FAIL_FAST: dict[str, Any] = {"fail_fast": True}
"""`Meta(extra=…)` for long lists: validation stops at the first invalid item."""


@cache
def _readers(struct: type[Request]) -> dict[str, Callable[[Any], Any]]:
    """The functions in the metadata of fields: their JSON form is not msgspec's, or it accepts what pydantic rejects."""
    hints = get_type_hints(struct, include_extras=True)
    return {name: read for name, hint in hints.items() if (read := _reader(hint)) is not None}


def _reader(hint: Any) -> Callable[[Any], Any] | None:
    if isinstance(hint, type) and issubclass(hint, Request):
        return hint.parse
    metadata: tuple[Any, ...] = getattr(cast("Any", hint), "__metadata__", ())
    own = filter(isfunction, metadata)
    inner = (_reader(part) for part in get_args(hint))
    read = next((read for read in (*own, *inner) if read is not None), None)
    if read is None or get_origin(hint) is not list:
        return read
    return lambda items: list(map(read, cast("list[Any]", items))) if isinstance(items, list) else items


def read_duration(value: object) -> timedelta:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise InvalidInput('write a duration as seconds (90, 1.5) or as text ("10m", "PT10M")')
    if isinstance(value, str):
        return limits.check_delay(duration(value, "this"), "this")
    if not 0 <= value <= limits.LONGEST_DELAY.total_seconds():
        raise InvalidInput("a duration is between 0 seconds and 10 years")
    return timedelta(seconds=value)


def read_instant(value: object) -> datetime:
    at = moment(value, "this") if isinstance(value, str) and not value.startswith("+") else None
    if not isinstance(at, datetime):
        raise InvalidInput("write an instant in RFC 3339 with its zone: 2030-01-31T18:00:00Z")
    return at


def _read_uuid(value: object) -> UUID:
    try:
        uuid = UUID(value) if isinstance(value, str) else None
    except ValueError:
        uuid = None
    if uuid is None or str(uuid) != value:
        raise InvalidInput("this is a UUID, in lower case; a token is copied from a delivery, as it is")
    return uuid


def _read_headers(value: Any) -> Any:
    """Check the number of headers before each is validated."""
    if isinstance(value, dict) and (n := len(cast("dict[Any, Any]", value))) > limits.HEADER_BYTES:
        raise InvalidInput(f"{n:,} headers exceed the limit of {limits.HEADER_BYTES:,} bytes")
    return cast("Any", value)


def read_line(value: Any) -> Any:
    """Python's `$` also matches before a line feed at the end."""
    if isinstance(value, str) and value.endswith("\n"):
        raise InvalidInput("a line feed at the end is not allowed")
    return value


At = Annotated[str, Meta(extra_json_schema={"type": "string", "format": "date-time"})]
"""An instant in a response."""

Duration = Annotated[
    timedelta,
    read_duration,
    Meta(
        extra_json_schema={
            "anyOf": [
                {"type": "number", "minimum": 0, "maximum": 315_619_200},
                {"type": "string", "pattern": "^[0-9]{1,6}(ms|s|m|h|d)$"},
            ],
            "examples": [90, "10m"],
        }
    ),
]
Instant = Annotated[
    datetime,
    read_instant,
    Meta(extra_json_schema={"type": "string", "format": "date-time", "examples": ["2030-01-31T18:00:00.000000Z"]}),
]
Token = Annotated[
    UUID,
    _read_uuid,
    Meta(extra_json_schema={"type": "string", "format": "uuid", "description": "From a delivery."}),
]
RequestId = Annotated[UUID, _read_uuid, Meta(extra_json_schema={"type": "string", "format": "uuid"})]
Headers = Annotated[dict[str, str], _read_headers]
Key = Annotated[str, Meta(min_length=1, max_length=limits.KEY_LENGTH, examples=["order-17"])]
TypeName = Annotated[str, Meta(min_length=1, max_length=limits.TYPE_LENGTH, examples=["invoice"])]
NAME_PATTERN = r"^(\.{0,2}[A-Za-z0-9_-]|\.{3})[A-Za-z0-9._-]*$"
"""The same as `limits.check_queue_name`: neither `.` nor `..`. Without look-ahead, which pydantic does not support."""
QueueName = Annotated[str, Meta(pattern=NAME_PATTERN, max_length=100, examples=["orders"]), read_line]
ContentType = Annotated[str, Meta(pattern=r"^[A-Za-z0-9.+-]{1,60}/[A-Za-z0-9.+-]{1,60}$"), read_line]
Priority = Annotated[int, Meta(ge=0, le=9)]
MaxAttempts = Annotated[int, Meta(ge=1, le=limits.MAX_ATTEMPTS)]
Version = Annotated[int, Meta(ge=1, le=2**63 - 1)]
ErrorText = Annotated[str, Meta(max_length=100_000)]


class Now(Response):
    now: At


class Page(Response):
    next: Annotated[str | None, Meta(description="Give it as `after` for the next page; null on the last.")]


class RetryRequest(Request):
    initial_for: Duration = timedelta(seconds=1)
    factor: Annotated[float, Meta(ge=1, le=10)] = 2.0
    cap_for: Duration = timedelta(minutes=10)
    jitter: Annotated[float, Meta(ge=0, le=1)] = 0.1

    def core(self) -> Retry:
        return Retry(**same_fields(self, Retry))
