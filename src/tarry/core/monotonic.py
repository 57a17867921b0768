"""A monotonic clock for leases: durations, never the time of day."""

import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", None)


def elapsed_s() -> float:
    """Seconds since an arbitrary start. Includes suspended time where the system supports it, because the database's
    leases expire during it."""
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)
