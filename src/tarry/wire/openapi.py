"""Pydantic models of the structs, for FastAPI's validation and the OpenAPI document.

Imported only by the broker: the command line and line imports use the structs without pydantic."""

import dataclasses
from functools import cache
from inspect import isfunction
from types import UnionType
from typing import Annotated, Any, Self, Union, cast, get_args, get_origin, get_type_hints

import msgspec
from msgspec import NODEFAULT, UNSET, Meta, Raw, UnsetType
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    GetCoreSchemaHandler,
    ModelWrapValidatorHandler,
    ValidationError,
    WithJsonSchema,
    create_model,
    model_validator,
)
from pydantic_core import core_schema

from tarry.core.errors import InvalidInput
from tarry.wire.base import FAIL_FAST, Request, Wire, shown_fields

MOST_ERRORS = 1_000
"""Maximum number of listed errors per request."""
_CONSTRAINTS = ("ge", "le", "min_length", "max_length", "pattern", "description", "examples")


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="wrap")
    @classmethod
    def _with_few_errors(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Replace a long list of errors by one: listing 100,000 blocks the event loop for more than half a second."""
        if isinstance(value, dict) and (members := len(cast("dict[Any, Any]", value))) > len(cls.model_fields) + 20:
            raise InvalidInput(f"it has {members:,} fields, but only {len(cls.model_fields)} are known")
        try:
            return handler(value)
        except ValidationError as error:
            if error.error_count() > MOST_ERRORS:
                raise InvalidInput(f"{error.error_count():,} fields are wrong") from None
            raise


def schema_of(struct: type[Wire], handler: GetCoreSchemaHandler) -> Any:
    if not issubclass(struct, Request):
        return handler(_model(struct, _Closed))

    def build(valid: BaseModel) -> Request:
        return struct(**{name: getattr(valid, name) for name in valid.model_fields_set})

    return core_schema.no_info_after_validator_function(build, handler(_model(struct, _Strict)))


@cache
def value_model(value: type[Any], name: str, **more: Any) -> type[BaseModel]:
    """The response model of a core dataclass whose fields, with its `also_shown` properties, are those of its JSON form.
    `more`: types of further fields."""
    hints = get_type_hints(value, include_extras=True)
    for name_shown in getattr(value, "also_shown", ()):
        hints[name_shown] = get_type_hints(getattr(value, name_shown).fget, include_extras=True)["return"]
    fields: dict[str, Any] = {name: (_annotation(hints[name]), ...) for name in shown_fields(value)}
    fields |= {name: (kind, ...) for name, kind in more.items()}
    return create_model(name, __base__=_Closed, **fields)


@cache
def _model(struct: type[Wire], base: type[BaseModel]) -> type[BaseModel]:
    hints = get_type_hints(struct, include_extras=True)
    fields: dict[str, Any] = {}
    for field in msgspec.structs.fields(struct):
        default = field.default if field.default_factory is NODEFAULT else field.default_factory()
        if default is NODEFAULT:
            default = ...
        elif default is UNSET or isinstance(default, Raw):
            default = None
        fields[field.name] = (_annotation(hints[field.name]), default)
    doc = struct.__doc__ if issubclass(struct, Request) else None
    return create_model(struct.__name__, __base__=base, __doc__=doc, **fields)


def _annotation(hint: Any) -> Any:
    """The pydantic annotation of a struct field."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        title = next((given.title for given in parts[1:] if isinstance(given, Meta)), None)  # the name of its schema
        kind = _annotation(parts[0]) if title is None else value_model(cast("type[Any]", parts[0]), title)
        metadata = [item for given in parts[1:] for item in _metadata(given)]
        return Annotated[kind, *metadata] if metadata else kind
    if origin in (Union, UnionType):
        return Union[tuple(_annotation(part) for part in parts if part is not UnsetType)]  # noqa: UP007 - computed
    if origin in (list, dict):
        return cast("Any", origin)[tuple(_annotation(part) for part in parts)]
    if dataclasses.is_dataclass(hint):
        return value_model(cast("type[Any]", hint), cast("type[Any]", hint).__name__)
    return Any if hint is Raw else hint


def _metadata(given: Any) -> list[Any]:
    if isfunction(given):
        return [BeforeValidator(given)]
    if not isinstance(given, Meta):
        return [given]
    if given.extra_json_schema is not None:
        return [WithJsonSchema(given.extra_json_schema)]
    constraints = {name: value for name in _CONSTRAINTS if (value := getattr(given, name)) is not None}
    fail_fast = [FailFast()] if given.extra == FAIL_FAST else []
    return [*([Field(**constraints)] if constraints else []), *fail_fast]
