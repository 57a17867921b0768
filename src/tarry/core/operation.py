"""Store calls as values.

A role method (`store.messages.offer(…)`) only describes a call; `store.run` executes it. So each role exists once for
blocking and async code."""

from typing import Any, Generic, TypeVar

R_co = TypeVar("R_co", covariant=True)


class Operation(Generic[R_co]):
    """A store call that has not been executed. Run it once, on the store whose role created it."""

    __slots__ = ()


def foreign(operation: Operation[Any]) -> TypeError:
    return TypeError(f"{type(operation).__name__} is not an operation of this store: run it on the store that made it")
