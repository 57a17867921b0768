"""One timer, and the protocol of structures that hold timers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")


class Timer(Generic[T]):
    """An item with a due time. Keep it to be able to cancel it."""

    __slots__ = ("due", "index", "item", "number", "place")

    def __init__(self, item: T, due: float, number: int) -> None:
        self.item = item
        self.due = due
        self.number = number
        """Sequence number: timers with equal due times are popped in the order of their start, and items are never
        compared.
        """
        self.place: object = None
        """The structure that holds the timer; None once it was popped or cancelled. Only that structure may change
        this.
        """
        self.index = 0
        """The position within the place, for structures that need it."""

    def __repr__(self) -> str:
        return f"<Timer {self.item!r} due {self.due}{'' if self.place else ', over'}>"


class Timers(Protocol[T]):
    """A structure of timers. Instants are readings of one monotonic clock, in seconds; any number except NaN is
    allowed.

    Not thread-safe: callers that share it need a lock.
    """

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Timer[T]]:
        """All pending timers, unordered."""
        ...

    def start(self, item: T, due: float, now: float) -> Timer[T]: ...

    def cancel(self, timer: Timer[T]) -> bool:
        """False if the timer was popped, was cancelled, or belongs to another structure."""
        ...

    def pop_due(self, now: float) -> Timer[T] | None:
        """Pop the earliest timer that is due; never one that is not."""
        ...

    def first(self) -> Timer[T] | None:
        """The earliest timer, due or not, without removing it."""
        ...

    def wake_at(self) -> float:
        """When to call `pop_due` again if nothing is started before; infinity if no timer is pending."""
        ...


def order(timer: Timer[T]) -> tuple[float, int]:
    return timer.due, timer.number
