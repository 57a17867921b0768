"""One run of PostgreSQL: remove leftovers, start, wait until ready, stop."""

import contextlib
import fcntl
import os
import signal
import time
from pathlib import Path

from .children import runs, spawn
from .layout import PORT, Layout
from .locks import acquire, open_lock
from .report import StartError

PAUSE_FOR = 0.01
# Time limit for the shutdown checkpoint; after it an immediate shutdown follows, and the next start replays the WAL.
STOP_FOR = 60.0

# Guaranteed settings: on the command line, where ALTER SYSTEM cannot change them. (A session still chooses its own
# synchronous_commit.)
PROMISED = {
    "listen_addresses": "",
    "port": str(PORT),
    "unix_socket_permissions": "0700",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
}


def claim_server(layout: Layout) -> int:
    """Acquire the server lock, which proves that no process of an earlier run is left. Leftover processes are
    signalled.
    """
    server = open_lock(layout.server_lock)
    told = (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL)
    for signal_number in told:
        if acquire(server, fcntl.LOCK_EX, deadline=0):
            break
        # Usually it is already stopping, because its supervisor died. Backends of a killed server end by themselves.
        pid = _noted_pid(layout)
        if pid is not None and runs(pid, layout.pgdata):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal_number)
        if acquire(server, fcntl.LOCK_EX, deadline=time.monotonic() + STOP_FOR / len(told)):
            break
    else:
        raise StartError(
            f"Processes of an earlier PostgreSQL in {layout.home} do not end. Find them with "
            f"fuser {layout.server_lock}, stop them with kill -QUIT, and start again."
        )
    # The pid in it may have been reused, and PostgreSQL would take that process for a running server.
    layout.postmaster_pid.unlink(missing_ok=True)
    return server


def launch(layout: Layout, binaries: Path, socket_dir: Path, *, log: int, server: int) -> int:
    """Start PostgreSQL and return its pid. It shuts down if the supervisor dies, so it is never unsupervised."""
    settings = PROMISED | {"unix_socket_directories": str(socket_dir)}
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    argv = [str(binaries / "postgres"), "-D", str(layout.pgdata), *options]
    return spawn(argv, log=log, inherit=server, on_our_death=signal.SIGINT)


def await_ready(layout: Layout, pid: int) -> None:
    """Wait without a time limit: WAL replay after a crash is progress, and ends."""
    while not _says_ready(layout, pid):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended == pid:
            code = os.waitstatus_to_exitcode(status)
            raise StartError(f"PostgreSQL in {layout.home} ended with status {code} instead of starting.")
        time.sleep(PAUSE_FOR)


def stop(pid: int) -> None:
    """Fast shutdown, then immediate shutdown after a time limit. Neither loses committed data."""
    os.kill(pid, signal.SIGINT)
    deadline = time.monotonic() + STOP_FOR
    while time.monotonic() < deadline:
        if os.waitpid(pid, os.WNOHANG)[0] == pid:
            return
        time.sleep(PAUSE_FOR)
    os.kill(pid, signal.SIGQUIT)
    os.waitpid(pid, 0)


def _noted_pid(layout: Layout) -> int | None:
    try:
        return int(layout.postmaster_pid.read_text(errors="replace").split("\n", 1)[0])
    except (FileNotFoundError, ValueError):
        return None


def _says_ready(layout: Layout, pid: int) -> bool:
    """Read PostgreSQL's pid file: line 1 is the pid, line 8 the status."""
    try:
        lines = layout.postmaster_pid.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return False
    return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"
