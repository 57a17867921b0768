"""Timers by due time: what is next, and what is due at an instant that the caller names. Nothing here waits.

- `timer`: one timer, and what every structure of them can do
- `heap`: a binary heap; exact, the cost of a start grows with the logarithm of what waits
- `wheel`: a hashed timing wheel; start and cancel cost the same however many wait, and one look serves a whole tick
"""

from tarry.core.timers.heap import TimerHeap
from tarry.core.timers.timer import Timer, Timers
from tarry.core.timers.wheel import TimerWheel

__all__ = ["Timer", "TimerHeap", "TimerWheel", "Timers"]
