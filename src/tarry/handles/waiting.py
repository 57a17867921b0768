"""How long a blocking poll sleeps before it looks again."""

from __future__ import annotations

from datetime import timedelta

_HELD_UP_FOR = timedelta(milliseconds=10)
"""What is due and was not handed out is in somebody's open transaction: ask again soon, but not all the time."""


def nap_s(next_due_in: timedelta | None, scan_every: timedelta, remaining_s: float | None) -> float:
    """Until the head is due, but never longer than one scan: somebody may offer an earlier message in the meantime."""
    nap = scan_every if next_due_in is None else min(next_due_in or _HELD_UP_FOR, scan_every)
    return nap.total_seconds() if remaining_s is None else max(0.0, min(nap.total_seconds(), remaining_s))
