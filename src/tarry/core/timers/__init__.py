"""Timers ordered by due time: the next one, and those due at an instant given by the caller. Nothing here waits.

- `timer`: one timer, and the protocol of the structures
- `heap`: a binary heap; exact, a start costs O(log n)
- `wheel`: a hashed timing wheel; start and cancel cost O(1), and one wakeup serves a whole tick
"""

from tarry.core.timers.heap import TimerHeap
from tarry.core.timers.timer import Timer, Timers
from tarry.core.timers.wheel import TimerWheel

__all__ = ["Timer", "TimerHeap", "TimerWheel", "Timers"]
