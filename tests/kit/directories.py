"""Where the servers of tests keep their data."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

_MEMORY = Path("/dev/shm")
_PLENTY = 8 * 1024**3


def new_directory(prefix: str) -> Path:
    """A new directory, in memory where there is plenty.

    Tests kill processes, never the power: `fsync` is on and is called as everywhere, but waits for no disk that others
    use. Not in pytest's own directory: PostgreSQL may run under another account, and the path of a socket must be short.
    """
    in_memory = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _PLENTY
    made = Path(tempfile.mkdtemp(prefix=prefix, dir=_MEMORY if in_memory else "/tmp"))
    made.chmod(0o755)
    return made
