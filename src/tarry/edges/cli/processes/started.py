"""The running time of this process, since its command was typed."""

import os
import time
from pathlib import Path

_IMPORTED_AT = time.monotonic()
_START = 19
"""Index of the start time, in ticks since boot, among the fields of /proc/self/stat after the name."""


def running_for_s() -> float:
    """Seconds since the process started, or, where the system does not report it, since this module was imported."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[_START]) / os.sysconf("SC_CLK_TCK")
    except (AttributeError, OSError, ValueError):
        return time.monotonic() - _IMPORTED_AT
