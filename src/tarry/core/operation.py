"""Calls of a store as values.

A method of a role (`store.messages.offer(…)`) does nothing but describe a call; `store.run` executes it. So the roles exist
once for code that blocks and code that awaits."""

from typing import Any, Generic, TypeVar

R_co = TypeVar("R_co", covariant=True)


class Operation(Generic[R_co]):
    """A call of a store that was not executed yet. Run it once, on the store whose role made it."""

    __slots__ = ()


def foreign(operation: Operation[Any]) -> TypeError:
    return TypeError(f"{type(operation).__name__} is not an operation of this store: run it on the store that made it")
