"""How long this process runs: the time since its command was typed."""

import os
import time
from pathlib import Path

_IMPORTED_AT = time.monotonic()
_START = 19
"""The start of a process, in ticks since the machine started: its place in /proc/self/stat after the name."""


def running_for_s() -> float:
    """Seconds since the process was started; where the system does not have it, since this module was imported."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[_START]) / os.sysconf("SC_CLK_TCK")
    except (AttributeError, OSError, ValueError):
        return time.monotonic() - _IMPORTED_AT
