"""A monotonic clock for leases: durations, never the time of day."""

import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", None)


def elapsed_s() -> float:
    """Seconds since some moment in the past. Includes the time a machine is suspended, where the system supports it:
    the database's lease expires meanwhile."""
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)
