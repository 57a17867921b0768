"""Handlers with their signatures, and the sources that a worker polls for them: a queue, or one type of it."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple, get_origin, get_type_hints

from tarry.api._sync.delivery import Delivery
from tarry.api.delivery import AsyncDelivery
from tarry.core import limits
from tarry.core.codecs import Codec, codec_for
from tarry.core.errors import InvalidInput, InvalidPayload
from tarry.core.messages.model import Decode
from tarry.core.messages.retry import Retry
from tarry.core.rates import Rate
from tarry.wire.payload import CONTENT

GIVEN = ("app", "resources")
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class UnreadablePayload(NamedTuple):
    """Replaces a payload that cannot be decoded."""

    reason: str


class Raised(NamedTuple):
    """An exception of a handler or codec, in place of the result or the payload."""

    error: BaseException


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterHandler:
    """Called with the `Handled` of a message that became a dead letter in this worker."""

    call: Callable[..., Any]
    name: str
    is_async: bool
    wants: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    queue: str
    type: str | None
    name: str
    call: Callable[..., Any]
    decode: Decode[Any]
    is_async: bool
    wants_delivery: bool
    wants: frozenset[str] = frozenset()
    """Which of `app` and `resources` it takes, as keyword arguments."""
    retry: Retry | None = None
    timeout: timedelta | None = None
    bury_on: tuple[type[Exception], ...] = ()
    on_dead: DeadLetterHandler | None = None

    def read(self, data: bytes, content_type: str | None) -> Any:
        """The payload, or the reason it cannot be read: one message must not fail its poll."""
        try:
            return self.decode(data, content_type)
        except InvalidPayload as error:
            return UnreadablePayload(error.message)
        except Exception as error:
            return Raised(error)


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
    name = _name(call)
    if retry is not None and not isinstance(retry, Retry):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"handler {name}: retry must be a tarry.Retry, as Retry.fixed(…), not {retry!r:.120}")
    if timeout is not None and limits.check_delay(timeout, "timeout") == timedelta(0):
        raise InvalidInput(f"handler {name}: timeout must be positive, got 0 s")
    for kind in bury_on:
        if not (inspect.isclass(kind) and issubclass(kind, Exception)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"handler {name}: bury_on takes exception classes, not {kind!r:.120}")
    is_async = _is_async(call)
    payload_type, wants_delivery, wants = _signature(call, name, is_async=is_async)
    return Handler(
        queue=limits.check_queue_name(queue),
        type=limits.check_type(type),
        name=name,
        call=call,
        decode=codec_for(payload_type).decode,
        is_async=is_async,
        wants_delivery=wants_delivery,
        wants=wants,
        retry=retry,
        timeout=timeout,
        bury_on=bury_on,
    )


def dead_letter_handler_for(call: Callable[..., Any]) -> DeadLetterHandler:
    name, parameters = _name(call), list(inspect.signature(call).parameters.values())
    required = [p for p in parameters if p.default is p.empty]
    wants = frozenset(p.name for p in required if p.kind is inspect.Parameter.KEYWORD_ONLY)
    if len(required) - len(wants) != 1 or not wants <= {*GIVEN}:
        names = ", ".join(p.name for p in parameters)
        allowed = "(handled), and by keyword app and resources: (handled, *, app, resources)"
        raise InvalidInput(f"{name} takes ({names}), but a dead letter handler takes {allowed}")
    return DeadLetterHandler(call=call, name=name, is_async=_is_async(call), wants=wants)


def _name(call: Callable[..., Any]) -> str:
    return getattr(call, "__qualname__", None) or repr(call)


def _is_async(call: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(getattr(call, "__call__", None))  # noqa: B004


def _signature(call: Callable[..., Any], name: str, *, is_async: bool) -> tuple[Any, bool, frozenset[str]]:
    """The payload type, whether the handler takes the delivery, and which of `app` and `resources`."""
    allowed = "(payload) or (payload, delivery), and by keyword app and resources: (payload, *, app, resources)"
    parameters = list(inspect.signature(call).parameters.values())
    taken = [p for p in parameters if p.kind in _POSITIONAL]
    extra = [
        p for p in parameters if p not in taken and p.kind is inspect.Parameter.KEYWORD_ONLY and p.default is p.empty
    ]
    required = [p for p in taken if p.default is p.empty]
    wants = frozenset(p.name for p in extra if p.name in GIVEN)
    if len(extra) > len(wants) or not taken or len(required) > 2:
        names = ", ".join(p.name for p in parameters)
        raise InvalidInput(f"handler {name} takes ({names}), but a handler takes {allowed}")
    try:
        hints = get_type_hints(call if inspect.isroutine(call) else call.__call__)
    except (NameError, TypeError) as error:
        raise InvalidInput(
            f"the annotations of handler {name} cannot be read: {error}",
            hint="use names that are defined in the handler's module when it is imported",
        ) from error
    payload = taken[0]
    if payload.name not in hints:
        raise InvalidInput(
            f"handler {name}: {payload.name} has no type, so the payload cannot be decoded",
            hint=f"annotate it: {payload.name}: Order (a dataclass, pydantic model, …), dict, str, bytes, or Any",
        )
    if _kind(hints[payload.name]) in (Delivery, AsyncDelivery):
        both = f"(payload: Order, {payload.name}: tarry.{_kind(hints[payload.name]).__name__}[Order])"
        raise InvalidInput(f"handler {name} takes the payload first, and then the delivery", hint=f"write {both}")
    wants_delivery = len(taken) > 1 and taken[1].default is taken[1].empty
    if wants_delivery:
        _check_delivery(hints.get(taken[1].name), name, is_async=is_async)
    # By name: the apps are composed above this layer.
    right, wrong = ("AsyncApp", "App") if is_async else ("App", "AsyncApp")
    if "app" in wants and getattr(hints.get("app"), "__name__", None) == wrong:
        raise InvalidInput(f"handler {name} is {'an async def' if is_async else 'a def'}: its app is a tarry.{right}")
    return hints[payload.name], wants_delivery, wants


def _check_delivery(hint: Any, name: str, *, is_async: bool) -> None:
    """Reject the wrong delivery annotation: an async verb that is not awaited would silently settle nothing."""
    right, wrong = (AsyncDelivery, Delivery) if is_async else (Delivery, AsyncDelivery)
    if _kind(hint) is wrong:
        defined = "async def" if is_async else "def"
        raise InvalidInput(f"handler {name} is an {defined}: its delivery is a tarry.{right.__name__}")


def _kind(hint: Any) -> Any:
    return get_origin(hint) or hint


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOptions:
    """A worker's options for one queue. None: the default of the worker or the queue."""

    concurrency: int | None = None
    prefetch: int | None = None
    lease_for: timedelta | None = None
    rate: Rate | None = None

    def __post_init__(self) -> None:
        if self.concurrency is not None and limits.check_count(self.concurrency, "concurrency") < 1:
            raise InvalidInput(f"concurrency must be at least 1, not {self.concurrency}")
        if self.prefetch is not None and limits.check_count(self.prefetch, "prefetch") < 0:
            raise InvalidInput(f"prefetch must not be negative, got {self.prefetch}")
        if self.lease_for is not None:
            limits.check_lease_for(self.lease_for)
        if self.rate is not None and not isinstance(self.rate, Rate):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"rate must be a tarry.Rate, as Rate(100, timedelta(seconds=1)), not {self.rate!r:.120}")

    def joined(self, other: QueueOptions, queue: str) -> QueueOptions:
        """The combination for two handlers of one queue; they must not contradict each other."""
        given = {field.name: getattr(other, field.name) for field in dataclasses.fields(other)}
        given = {name: value for name, value in given.items() if value is not None}
        for name, value in given.items():
            if getattr(self, name) not in (None, value):
                raise InvalidInput(
                    f"queue {queue!r} has {name}={getattr(self, name)} already, and now {name}={value}",
                    hint=f"{name} belongs to the whole queue: give it to one of its handlers",
                )
        return dataclasses.replace(self, **given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    queue: str
    type: str | None
    options: QueueOptions
    handlers: Mapping[str | None, Handler]
    """By type; None: every type without its own handler."""

    @property
    def codec(self) -> Codec[Any]:
        """With a single handler the poll decodes the payloads for it; otherwise it returns their `Content`."""
        if len(self.handlers) > 1:
            return CONTENT
        (handler,) = self.handlers.values()
        return Codec(CONTENT.encode, handler.read)

    def handler_of(self, type: str | None) -> Handler:
        return self.handlers[type if type in self.handlers else None if self.type is None else self.type]

    @property
    def max_attempts(self) -> int | None:
        """The attempt limit for all messages of a poll: the maximum of the handlers' limits."""
        allowed = [handler.retry.max_attempts if handler.retry else None for handler in self.handlers.values()]
        return max((n for n in allowed if n is not None), default=None) if None not in allowed else None

    def __str__(self) -> str:
        return self.queue if self.type is None else f"{self.queue}/{self.type}"


def sources_of(handlers: Iterable[Handler], options: Mapping[str, QueueOptions]) -> list[Source]:
    """One source for a queue with a handler for all types. Otherwise one per type, so types without a handler here are
    left to other workers."""
    by_queue: dict[str, dict[str | None, Handler]] = {}
    for handler in handlers:
        by_queue.setdefault(handler.queue, {})[handler.type] = handler
    sources: list[Source] = []
    for queue, by_type in by_queue.items():
        if None in by_type:
            sources.append(Source(queue=queue, type=None, options=options[queue], handlers=by_type))
        else:
            sources += [
                Source(queue=queue, type=type, options=options[queue], handlers={type: handler})
                for type, handler in by_type.items()
            ]
    return sources
