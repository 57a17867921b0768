"""A database of its own for each run of an example, whatever the environment names."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

from tarry.storage.postgres.embedded.supervisor.layout import Layout, acquire, open_lock

LEFT_WITHIN_S = 10.0


@contextmanager
def own_home(prefix: str) -> Generator[Path]:
    """A directory for the database and the lake of this run, removed when the last process has left it."""
    for name in [name for name in os.environ if name.startswith(("TARRY_", "PG"))]:
        del os.environ[name]
    home = Path(mkdtemp(prefix=prefix))
    home.chmod(0o755)  # as root, PostgreSQL runs under another account
    os.environ |= {"TARRY_HOME": str(home), "TMPDIR": str(home), "SPARK_LOCAL_DIRS": str(home)}
    try:
        yield home
    finally:
        for database in map(Layout, home.glob("postgres-*")):
            supervisor = open_lock(database.supervisor_lock)
            acquire(supervisor, fcntl.LOCK_EX, deadline=time.monotonic() + LEFT_WITHIN_S)
            os.close(supervisor)
        shutil.rmtree(home, ignore_errors=True)
