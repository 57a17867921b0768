# Generated from src/tarry/core/ports.py by tools/generate-blocking. Edit that file, then run `make generate`.
"""The blocking half of `tarry.core.ports`."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from tarry.core.operation import Operation
from tarry.core.ports import Connections, Roles
from tarry.core.security.idempotency import IdempotencyKey, IdempotentCall, StoredResponse
from tarry.core.settings import StoreSettings

R = TypeVar("R")


class Store(Roles, Protocol):
    @property
    def settings(self) -> StoreSettings: ...

    def run(self, operation: Operation[R], conn: Any = None) -> R:
        """`conn`: the caller's connection. The operation is then part of the caller's transaction, is not retried, and takes
        effect when the caller commits."""
        ...

    def run_idempotent(self, request: IdempotencyKey, do: IdempotentCall) -> StoredResponse | None:
        """Return the response of `do`, or its stored response. The changes that `do` makes with its connection are committed
        together with its response; it must not wait for another connection. None: the key was used for another request."""
        ...

    def connections(self) -> Connections: ...
    def close(self) -> None: ...
