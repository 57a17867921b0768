"""One log file for PostgreSQL, initdb and the supervisor: limited in size, and quoted when a start fails."""

import os
import shutil
from pathlib import Path

LIMIT = 8 * 1024 * 1024
QUOTED = 4096


def open_log(path: Path) -> int:
    keep_small(path)
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def keep_small(path: Path) -> None:
    """Truncate in place and keep one copy: PostgreSQL continues to append to the same file."""
    if path.exists() and path.stat().st_size > LIMIT:
        shutil.copyfile(path, path.with_suffix(".log.1"))
        os.truncate(path, 0)


def tail(path: Path, since: int) -> str:
    """The end of what was written after the offset `since`."""
    with path.open("rb") as log:
        end = log.seek(0, os.SEEK_END)
        log.seek(max(0, since, end - QUOTED))
        return log.read().decode(errors="replace").strip()
