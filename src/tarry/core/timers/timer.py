"""One timer, and what every structure of timers can do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")


class Timer(Generic[T]):
    """An item that waits for its time. Keep it to be able to cancel it."""

    __slots__ = ("due", "index", "item", "number", "place")

    def __init__(self, item: T, due: float, number: int) -> None:
        self.item = item
        self.due = due
        self.number = number
        """Equal times come out in the order in which they were started, and items are never compared."""
        self.place: object = None
        """What holds it now: None once it has come out or was cancelled. Only its structure may change this."""
        self.index = 0
        """Where in its place, for those that want to know."""

    def __repr__(self) -> str:
        return f"<Timer {self.item!r} due {self.due}{'' if self.place else ', over'}>"


class Timers(Protocol[T]):
    """Instants are readings of one monotonic clock, in seconds; any number but NaN will do.

    Not for several threads at once: whoever shares them has a lock.
    """

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Timer[T]]:
        """All that wait, in no order."""
        ...

    def start(self, item: T, due: float, now: float) -> Timer[T]: ...

    def cancel(self, timer: Timer[T]) -> bool:
        """False if it has come out, was cancelled, or belongs to somebody else."""
        ...

    def pop_due(self, now: float) -> Timer[T] | None:
        """The earliest timer that is due; never one that is not."""
        ...

    def first(self) -> Timer[T] | None:
        """The earliest timer, due or not; it stays."""
        ...

    def wake_at(self) -> float:
        """When it pays to look again, if nothing is started before: infinity if nothing waits."""
        ...


def order(timer: Timer[T]) -> tuple[float, int]:
    return timer.due, timer.number
