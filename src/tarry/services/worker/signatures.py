"""Handler signatures for type checkers: `(payload)` or `(payload, delivery)`, and by keyword `app` and `resources`. A sync
function takes a `Delivery`, an async function an `AsyncDelivery`, of its payload type."""

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar, overload

from tarry.api._sync.delivery import Delivery
from tarry.api.delivery import AsyncDelivery
from tarry.core.messages.handler_results import HandlerReturn

P = TypeVar("P")
P_contra = TypeVar("P_contra", contravariant=True)
D_contra = TypeVar("D_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)
Awaited = Coroutine[Any, Any, HandlerReturn]
AnyDelivery = Delivery[Any] | AsyncDelivery[Any]
"""The handler's delivery, as middleware and hooks get it."""


class TakesApp(Protocol[R_co]):
    def __call__(self, payload: Any, /, *, app: Any) -> R_co: ...


class TakesResources(Protocol[R_co]):
    def __call__(self, payload: Any, /, *, resources: Any) -> R_co: ...


class TakesBoth(Protocol[R_co]):
    def __call__(self, payload: Any, /, *, app: Any, resources: Any) -> R_co: ...


class _DeliveryApp(Protocol[P_contra, D_contra, R_co]):
    def __call__(self, payload: P_contra, delivery: D_contra, /, *, app: Any) -> R_co: ...


class _DeliveryResources(Protocol[P_contra, D_contra, R_co]):
    def __call__(self, payload: P_contra, delivery: D_contra, /, *, resources: Any) -> R_co: ...


class _DeliveryBoth(Protocol[P_contra, D_contra, R_co]):
    def __call__(self, payload: P_contra, delivery: D_contra, /, *, app: Any, resources: Any) -> R_co: ...


_Plain = Callable[[Any], R_co] | TakesApp[R_co] | TakesResources[R_co] | TakesBoth[R_co]
PlainHandler = TypeVar("PlainHandler", bound=_Plain[HandlerReturn] | _Plain[Awaited])
_Async = Callable[[P, AsyncDelivery[P]], Awaited]
_AsyncApp = _DeliveryApp[P, AsyncDelivery[P], Awaited]
_AsyncResources = _DeliveryResources[P, AsyncDelivery[P], Awaited]
_AsyncBoth = _DeliveryBoth[P, AsyncDelivery[P], Awaited]
_Sync = Callable[[P, Delivery[P]], HandlerReturn]
_SyncApp = _DeliveryApp[P, Delivery[P], HandlerReturn]
_SyncResources = _DeliveryResources[P, Delivery[P], HandlerReturn]
_SyncBoth = _DeliveryBoth[P, Delivery[P], HandlerReturn]


class Register(Protocol):
    """The decorator that `Worker.handler` returns. Each signature has its overload: with a union, mypy misses wrong payloads.
    The first overload is the one that mypy names in errors, so it is not the one with a type variable."""

    @overload
    def __call__(self, call: _Async[P], /) -> _Async[P]: ...
    @overload
    def __call__(self, call: _AsyncApp[P], /) -> _AsyncApp[P]: ...
    @overload
    def __call__(self, call: _AsyncResources[P], /) -> _AsyncResources[P]: ...
    @overload
    def __call__(self, call: _AsyncBoth[P], /) -> _AsyncBoth[P]: ...
    @overload
    def __call__(self, call: _Sync[P], /) -> _Sync[P]: ...
    @overload
    def __call__(self, call: _SyncApp[P], /) -> _SyncApp[P]: ...
    @overload
    def __call__(self, call: _SyncResources[P], /) -> _SyncResources[P]: ...
    @overload
    def __call__(self, call: _SyncBoth[P], /) -> _SyncBoth[P]: ...
    @overload
    def __call__(self, call: PlainHandler, /) -> PlainHandler: ...
