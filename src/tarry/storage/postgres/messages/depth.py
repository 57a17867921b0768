"""The limit of live messages per queue (`max_depth`), without a count in every offer.

A statement that offers finds no queue if the queue has a limit and the caller does not know that there is free capacity. The
caller then counts, and may offer a tenth of the free capacity within a second, without counting again. So a single process
refuses exactly at the limit, and several may exceed it by what they offer at the same moment. After a count that found the
queue full, generated keys are refused for ten times as long as the count took: a flood of refused offers costs the database a
tenth of a connection.
"""

from collections.abc import Callable

from tarry.core.errors import QueueFull

SHARE = 10
"""One of so many parts of the free capacity may be used without another count."""
VALID_FOR_S = 1.0
REFUSED_FOR = 10
"""Times the duration of the count."""


class DepthBudget:
    """What this process may offer to queues that have a limit, before it counts again."""

    def __init__(self, timer: Callable[[], float]) -> None:
        self.timer = timer
        self.queues: set[str] = set()
        """Those that had a limit when they were counted."""
        self._left: dict[str, tuple[int, float]] = {}
        self._full: dict[str, tuple[int, float]] = {}

    def require(self, queue: str) -> None:
        """Raise `QueueFull` if the queue was full a moment ago: for keys that are new for certain."""
        if queue in self._full:
            max_depth, until = self._full[queue]
            if self.timer() < until:
                raise QueueFull.of(queue, max_depth)
            del self._full[queue]

    def take(self, queue: str, n: int) -> bool:
        """Whether `n` messages may be offered without a count. Never for a queue without a limit, which needs none."""
        if queue not in self._left:
            return False
        left, until = self._left[queue]
        if n > left or self.timer() > until:
            return False
        self._left[queue] = left - n, until
        return True

    def counted(self, queue: str, n: int, max_depth: int | None, depth: int, live: int, *, took_s: float) -> None:
        """Note a count before an offer of `n` keys, of which some are live. Raises `QueueFull` if the others do not fit."""
        if max_depth is None:  # the limit was removed meanwhile
            return
        self.queues.add(queue)
        free = max_depth - depth - (n - live)
        if free < 0 and n > live:
            if depth >= max_depth:
                self._full[queue] = max_depth, self.timer() + REFUSED_FOR * took_s
            raise QueueFull.of(queue, max_depth)
        self._left[queue] = max(0, free) // SHARE, self.timer() + VALID_FOR_S
