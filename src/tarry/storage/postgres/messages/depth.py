"""The limit of live messages per queue (`max_depth`), without a count in every offer.

An offer statement finds no queue if the queue has a limit and the process has no budget for it. The process then counts, and
for a second may offer a tenth of the free capacity without another count. A single process therefore refuses exactly at the
limit; several may exceed it by their concurrent offers. After a count that found the queue full, generated keys are refused
for ten times the duration of the count: a flood of refused offers uses a tenth of one connection.
"""

from collections.abc import Callable

from tarry.core.errors import QueueFull

SHARE = 10
"""The divisor of the free capacity that may be used without another count."""
VALID_FOR_S = 1.0
REFUSED_FOR = 10
"""A multiple of the duration of the count."""


class DepthBudget:
    """The messages that this process may offer to queues with a limit before it counts again."""

    def __init__(self, timer: Callable[[], float]) -> None:
        self.timer = timer
        self.queues: set[str] = set()
        """Queues that had a limit at their last count."""
        self._left: dict[str, tuple[int, float]] = {}
        self._full: dict[str, tuple[int, float]] = {}

    def require(self, queue: str) -> None:
        """Raise `QueueFull` if a recent count found the queue full. Only for keys that are certainly new."""
        if queue in self._full:
            max_depth, until = self._full[queue]
            if self.timer() < until:
                raise QueueFull.of(queue, max_depth)
            del self._full[queue]

    def take(self, queue: str, n: int) -> bool:
        """Take `n` messages from the budget; False if a count is needed, or the queue has no known limit."""
        if queue not in self._left:
            return False
        left, until = self._left[queue]
        if n > left or self.timer() > until:
            return False
        self._left[queue] = left - n, until
        return True

    def counted(self, queue: str, n: int, max_depth: int | None, depth: int, live: int, *, took_s: float) -> None:
        """Record a count before an offer of `n` keys, of which `live` exist. Raises `QueueFull` if the others do not fit."""
        if max_depth is None:  # the limit was removed
            return
        self.queues.add(queue)
        free = max_depth - depth - (n - live)
        if free < 0 and n > live:
            if depth >= max_depth:
                self._full[queue] = max_depth, self.timer() + REFUSED_FOR * took_s
            raise QueueFull.of(queue, max_depth)
        self._left[queue] = max(0, free) // SHARE, self.timer() + VALID_FOR_S
