"""File locks, which the kernel releases however their holder ends."""

import fcntl
import os
import time
from pathlib import Path

PAUSE_FOR = 0.01


def open_lock(path: Path) -> int:
    """A descriptor to lock; not inherited across exec, but shared with forked children."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        pass
    try:
        made = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return os.open(path, flags)
    if os.geteuid() == 0:
        # Root joins servers that other accounts run, and these must be able to open the file too.
        owner = path.parent.stat()
        os.fchown(made, owner.st_uid, owner.st_gid)
    return made


def acquire(lock: int, kind: int, *, deadline: float) -> bool:
    """Whether the lock was acquired before the deadline (of `time.monotonic`); 0 tries once."""
    while True:
        try:
            fcntl.flock(lock, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(PAUSE_FOR)
        else:
            return True
