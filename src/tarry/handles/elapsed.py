"""Time that only goes forward, for leases: how long since, never what time it is."""

from __future__ import annotations

import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", None)


def elapsed_s() -> float:
    """Seconds since some moment in the past. A machine that sleeps does not stop it, where the system can tell: the
    database goes on counting a lease meanwhile."""
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)
