"""The supervisor: assume an account, remove leftovers, serve until no process uses the server, clean up."""

import contextlib
import fcntl
import os
import shutil
import signal
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from . import postgres
from .identity import assume, namespaces_allowed
from .layout import BUSY, FAILED, PROBE, READY, Layout, ServerState, StartError, acquire, open_lock, write_state

LOG_LIMIT = 8 * 1024 * 1024
LOG_CHECK_EVERY = 60.0
QUOTED_LOG = 4096


def main(argv: list[str]) -> NoReturn:
    if argv == [PROBE]:
        sys.exit(0 if namespaces_allowed() else 1)
    # Fork twice, so that the launcher has no zombie to reap.
    if os.fork() != 0:
        os._exit(0)
    os.umask(0o077)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    home, binaries, major, runtime_dir = argv
    layout, pipe = Layout(Path(home)), os.dup(1)
    try:
        assume(layout.home, Path(binaries) / "postgres")
        supervisor_lock = open_lock(layout.supervisor_lock)
        if not acquire(supervisor_lock, fcntl.LOCK_EX, deadline=0):
            report(pipe, BUSY)
            sys.exit(0)
        Supervisor(
            layout, Path(binaries), int(major), Path(runtime_dir) if runtime_dir else None, supervisor_lock, pipe
        ).run()
    except StartError as failure:
        report(pipe, FAILED, str(failure))
    except Exception:
        report(pipe, FAILED, f"The supervisor of PostgreSQL failed:\n{traceback.format_exc()}")
        raise
    sys.exit(0)


def report(pipe: int, verdict: str, message: str = "") -> None:
    """Send the single message to the process that launched the supervisor, and redirect the pipe to standard error: later
    messages go to the log."""
    # If the launcher is gone, it does not use the server, which will then stop as usual.
    with contextlib.suppress(BrokenPipeError):
        os.write(pipe, f"{verdict}\n{message}\n".encode(errors="replace"))
    os.dup2(2, pipe, inheritable=False)


@dataclass(eq=False)
class Supervisor:
    """Parent of one PostgreSQL, which it restarts after a crash. The supervisor lock is already held."""

    _layout: Layout
    _binaries: Path
    _major: int
    _runtime_dir: Path | None
    _lock: int
    _pipe: int

    def __post_init__(self) -> None:
        self._log = open_log(self._layout.log)
        self._socket_dir: Path | None = None
        self._postmaster: int | None = None
        self._ending = False
        os.dup2(self._log, 1)
        os.dup2(self._log, 2)

    def run(self) -> None:
        log_size = os.fstat(self._log).st_size
        try:
            self._start()
        except StartError as failure:
            quoted = tail(self._layout.log, log_size)
            raise StartError(
                f"{failure}\nIts log, {self._layout.log}, ends with:\n{quoted}" if quoted else str(failure)
            ) from None
        report(self._pipe, READY)
        for ending in (signal.SIGTERM, signal.SIGINT):
            signal.signal(ending, self._end)
        signal.signal(signal.SIGALRM, lambda _number, _frame: keep_small(self._layout.log))
        signal.setitimer(signal.ITIMER_REAL, LOG_CHECK_EVERY, LOG_CHECK_EVERY)
        self._serve()
        self._finish()

    def _start(self) -> None:
        layout, binaries, log = self._layout, self._binaries, self._log
        server_lock = postgres.claim_server(layout)
        postgres.ensure_files(layout, binaries, self._major, log=log, server_lock=server_lock)
        self._socket_dir = postgres.prepare_socket_dir(layout, self._runtime_dir)
        # Kept: an object that is dropped would wait for its process.
        self._process = postgres.launch(layout, binaries, self._socket_dir, log=log, server_lock=server_lock)
        pid = self._process.pid
        # From here on only PostgreSQL's processes hold it.
        os.close(server_lock)
        postgres.await_ready(layout, pid)
        self._postmaster = pid
        write_state(layout, ServerState(self._socket_dir, pid, os.getpid()))

    def _serve(self) -> None:
        """Wait until PostgreSQL or the child that watches its users ends."""
        startup_lock, users_lock = open_lock(self._layout.startup_lock), open_lock(self._layout.users_lock)
        watcher = self._watch(startup_lock, users_lock)
        while not self._ending:
            ended, status = os.wait()
            if ended == watcher:
                if status == 0:
                    return
                watcher = self._watch(startup_lock, users_lock)
            elif ended == self._postmaster:
                self._postmaster = None
                self._layout.state.unlink(missing_ok=True)
                if status == 0:
                    # Stopped on purpose from outside; the next process that needs the server starts it again.
                    return
                # Killed or crashed while in use; clients see only a lost connection. Restart before they retry.
                self._start()

    def _watch(self, startup_lock: int, users_lock: int) -> int:
        """Fork a child that exits with status 0 when no process uses the server and, by the startup lock, none can join.

        A child, because the supervisor waits for processes: one wait covers both a dead server and the departure of the
        last user. It acquires the locks for its parent: a lock belongs to the open file, which both share.
        """
        parent = os.getpid()
        child = os.fork()
        if child != 0:
            return child
        try:
            for handled in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
                signal.signal(handled, signal.SIG_DFL)
            postgres.die_with(parent, signal.SIGKILL)
            os.close(self._lock)
            while True:
                fcntl.flock(users_lock, fcntl.LOCK_EX)
                # Released before the other lock is requested: a new user holds startup and requests users, which would
                # deadlock.
                fcntl.flock(users_lock, fcntl.LOCK_UN)
                fcntl.flock(startup_lock, fcntl.LOCK_EX)
                if acquire(users_lock, fcntl.LOCK_EX, deadline=0):
                    os._exit(0)
                fcntl.flock(startup_lock, fcntl.LOCK_UN)
        finally:
            os._exit(1)

    def _finish(self) -> None:
        self._layout.state.unlink(missing_ok=True)
        # Clear the pid first: a signal that arrives now must not go to a pid that may soon be reused.
        pid, self._postmaster = self._postmaster, None
        if pid is not None:
            postgres.stop(pid)
        if self._socket_dir is not None:
            postgres.discard_socket_dir(self._layout, self._socket_dir)
        # Before the startup lock, which is released at exit: the next holder of startup must not find this supervisor.
        os.close(self._lock)

    def _end(self, *_: object) -> None:
        """Handle a termination signal: stop PostgreSQL, which wakes the main loop, which then ends."""
        self._ending = True
        if self._postmaster is not None:
            os.kill(self._postmaster, signal.SIGINT)


def open_log(path: Path) -> int:
    """Open the log of PostgreSQL, initdb and the supervisor."""
    keep_small(path)
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def keep_small(path: Path) -> None:
    """Truncate in place and keep one copy: PostgreSQL continues to append to the same file."""
    if path.exists() and path.stat().st_size > LOG_LIMIT:
        shutil.copyfile(path, path.with_suffix(".log.1"))
        os.truncate(path, 0)


def tail(path: Path, since: int) -> str:
    """The end of the text that was written after the offset `since`."""
    with path.open("rb") as log:
        end = log.seek(0, os.SEEK_END)
        log.seek(max(0, since, end - QUOTED_LOG))
        return log.read().decode(errors="replace").strip()
