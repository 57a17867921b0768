"""Handler functions: their signatures, and errors for invalid ones."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple, get_origin, get_type_hints

from tarry.core import limits
from tarry.core.codecs import Codec, codec_for
from tarry.core.errors import InvalidInput
from tarry.core.messages import Decode
from tarry.core.retry import Retry
from tarry.handles.delivery import AsyncDelivery, Delivery

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Raw(NamedTuple):
    """An undecoded payload. One poll serves handlers of several types, so it cannot decode for them."""

    data: bytes
    content_type: str | None


RAW: Codec[Raw] = Codec(lambda raw: (raw.data, raw.content_type), Raw)


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    queue: str
    type: str | None
    name: str
    call: Callable[..., Any]
    decode: Decode[Any]
    is_async: bool
    wants_delivery: bool
    retry: Retry | None = None
    timeout: timedelta | None = None
    bury_on: tuple[type[Exception], ...] = ()


def handler_for(
    call: Callable[..., Any],
    queue: str,
    type: str | None,
    *,
    retry: Retry | None,
    timeout: timedelta | None,
    bury_on: tuple[type[Exception], ...],
) -> Handler:
    if not callable(call):
        raise InvalidInput(f"a handler is a function, not {call!r:.120}")
    name = getattr(call, "__qualname__", None) or repr(call)
    if retry is not None and not isinstance(retry, Retry):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"handler {name}: retry must be a tarry.Retry, as Retry.fixed(…), not {retry!r:.120}")
    if timeout is not None and limits.check_delay(timeout, "timeout") == timedelta(0):
        raise InvalidInput(f"handler {name}: a timeout of nothing leaves no time to do anything")
    for kind in bury_on:
        if not (inspect.isclass(kind) and issubclass(kind, Exception)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"handler {name}: bury_on takes classes of exceptions, not {kind!r:.120}")
    is_async = inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(getattr(call, "__call__", None))  # noqa: B004
    payload_type, wants_delivery = _signature(call, name, is_async=is_async)
    return Handler(
        queue=limits.check_queue_name(queue),
        type=limits.check_type(type),
        name=name,
        call=call,
        decode=codec_for(payload_type).decode,
        is_async=is_async,
        wants_delivery=wants_delivery,
        retry=retry,
        timeout=timeout,
        bury_on=bury_on,
    )


def _signature(call: Callable[..., Any], name: str, *, is_async: bool) -> tuple[Any, bool]:
    """The type of the payload, and whether the handler takes the delivery too."""
    wanted = "(payload) or (payload, delivery)"
    parameters = list(inspect.signature(call).parameters.values())
    taken = [p for p in parameters if p.kind in _POSITIONAL]
    extra = [
        p for p in parameters if p not in taken and p.kind is inspect.Parameter.KEYWORD_ONLY and p.default is p.empty
    ]
    required = [p for p in taken if p.default is p.empty]
    if extra or not taken or len(required) > 2:
        said = ", ".join(p.name for p in parameters)
        raise InvalidInput(f"handler {name} takes ({said}), and a handler takes {wanted}")
    try:
        hints = get_type_hints(call if inspect.isroutine(call) else call.__call__)
    except (NameError, TypeError) as error:
        raise InvalidInput(
            f"the annotations of handler {name} cannot be read: {error}",
            hint="use names that the module of the handler knows when it is imported",
        ) from error
    payload = taken[0]
    if payload.name not in hints:
        raise InvalidInput(
            f"handler {name}: {payload.name} has no type, so nobody knows how to read the payload",
            hint=f"annotate it: {payload.name}: Order (a dataclass, pydantic model, …), dict, str, bytes, or Any",
        )
    wants_delivery = len(taken) > 1 and taken[1].default is taken[1].empty
    if wants_delivery:
        _check_delivery(hints.get(taken[1].name), name, is_async=is_async)
    return hints[payload.name], wants_delivery


def _check_delivery(hint: Any, name: str, *, is_async: bool) -> None:
    """Reject a delivery annotation of the wrong kind: an unawaited async verb would silently settle nothing."""
    kind = get_origin(hint) or hint
    right, wrong = (AsyncDelivery, Delivery) if is_async else (Delivery, AsyncDelivery)
    if kind is wrong:
        defined = "async def" if is_async else "def"
        raise InvalidInput(f"handler {name} is an {defined}: its delivery is a tarry.{right.__name__}")
