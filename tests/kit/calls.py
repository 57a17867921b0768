"""Store calls as functions, and their replacement: for tests that watch a call, delay it, or make it fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tarry.core.operation import Operation


class Replaced(Operation[Any]):
    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], options: Mapping[str, Any]) -> None:
        self.function, self.args, self.options = function, args, options


def call_of(store: Any, path: str) -> Callable[..., Any]:
    """`call_of(store, "messages.offer")(…)` makes the operation and runs it, also after it was replaced."""
    role, _, name = path.partition(".")
    make, run = getattr(getattr(store, role), name), store.run
    return lambda *args, conn=None, **options: run(make(*args, **options), conn)


def replace_call(store: Any, path: str, function: Callable[..., Any]) -> None:
    """When an operation of this method runs, call `function` with its arguments instead."""
    role, _, name = path.partition(".")
    run = store.run

    def patched(operation: Operation[Any], conn: Any = None) -> Any:
        if isinstance(operation, Replaced) and operation.function is function:
            given = {} if conn is None else {"conn": conn}
            return function(*operation.args, **operation.options, **given)
        return run(operation, conn)

    setattr(getattr(store, role), name, lambda *args, **options: Replaced(function, args, options))
    store.run = patched
