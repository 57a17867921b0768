"""Creates PostgreSQL's files: all of them or none."""

import locale
import os
import shutil
import tempfile
from pathlib import Path

from .children import run
from .layout import DATABASE, SUPERUSER, Layout
from .report import StartError

# The directory of the socket controls access: only users that can enter it can connect, so `trust` suffices. (`peer`
# would compare account names across the namespace, where they differ.)
ACCESS = "local all all trust\n"

# Sizes and display: may be changed with ALTER SYSTEM. Guaranteed settings are on the command line (postmaster.py).
TUNING = """
# Tarry's embedded server
shared_buffers = '128MB'
max_connections = 200
timezone = 'UTC'
log_timezone = 'UTC'
log_checkpoints = off
"""


def ensure(layout: Layout, binaries: Path, major: int, *, log: int, server: int) -> None:
    """Create the files beside their final place and rename when complete: an interrupted attempt is never seen."""
    if layout.pgdata.exists():
        return
    for unfinished in layout.home.glob("pgdata.new-*"):
        shutil.rmtree(unfinished, ignore_errors=True)
    draft = Path(tempfile.mkdtemp(prefix="pgdata.new-", dir=layout.home))
    try:
        _step(_initdb(binaries, draft, major), log=log, server=server)
        (draft / "pg_hba.conf").write_text(ACCESS)
        with (draft / "postgresql.conf").open("a") as conf:
            conf.write(TUNING)
        _step(_single_user(binaries, draft), log=log, server=server, text=f"create database {DATABASE}\n".encode())
        # Once, at the end, instead of after every step.
        _step([str(binaries / "initdb"), "-D", str(draft), "--sync-only"], log=log, server=server)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    draft.rename(layout.pgdata)
    _sync(layout.home)


def _step(argv: list[str], *, log: int, server: int, text: bytes = b"") -> None:
    status = run(argv, log=log, inherit=server, text=text)
    if status != 0:
        raise StartError(f"PostgreSQL's files could not be made: status {status} of {' '.join(argv)}")


def _single_user(binaries: Path, draft: Path) -> list[str]:
    """Single-user mode reads statements from standard input: creating the database needs no listener and no client
    program.
    """
    durable_later = ["-c", "fsync=off"]
    return [
        str(binaries / "postgres"),
        "--single",
        "-D",
        str(draft),
        "-c",
        "exit_on_error=on",
        *durable_later,
        "template1",
    ]


def _initdb(binaries: Path, draft: Path, major: int) -> list[str]:
    # Sorted by code point, the same on every machine; letters beyond ASCII still have upper and lower case.
    if major >= 17:
        letters = ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    else:
        letters = ["--locale=C", "--lc-ctype=C.UTF-8"] if _has_utf8() else ["--locale=C"]
    return [
        *(str(binaries / "initdb"), "-D", str(draft), f"--username={SUPERUSER}", "--auth=trust"),
        *("--encoding=UTF8", *letters, "--data-checksums", "--no-sync", "--no-instructions"),
    ]


def _has_utf8() -> bool:
    before = locale.setlocale(locale.LC_CTYPE)
    try:
        locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
    except locale.Error:
        return False
    locale.setlocale(locale.LC_CTYPE, before)
    return True


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(descriptor)
    os.close(descriptor)
