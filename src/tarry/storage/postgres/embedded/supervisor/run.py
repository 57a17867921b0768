"""The supervisor: assume an account, remove leftovers, serve until no process uses the server, clean up."""

import fcntl
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import NoReturn

from . import cluster, postmaster, sockets
from .identity import assume, namespaces_allowed
from .locks import acquire, open_lock
from .log import keep_small, open_log, tail
from .order import PROBE, Order
from .report import BUSY, FAILED, READY, Report, StartError
from .state import State, forget_state, write_state
from .watch import Watch

LOOK_AT_LOG_EVERY = 60.0


def main(argv: list[str]) -> NoReturn:
    if argv == [PROBE]:
        sys.exit(0 if namespaces_allowed() else 1)
    # Fork twice, so that the launcher has no zombie to reap.
    if os.fork() != 0:
        os._exit(0)
    os.umask(0o077)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    order, report = Order.from_argv(argv), Report(os.dup(1))
    try:
        assume(order.home, order.binaries / "postgres")
        supervisor = open_lock(order.layout.supervisor_lock)
        if not acquire(supervisor, fcntl.LOCK_EX, deadline=0):
            report.send(BUSY)
            sys.exit(0)
        Supervisor(order, supervisor, report).run()
    except StartError as failure:
        report.send(FAILED, str(failure))
    except Exception:
        report.send(FAILED, f"The supervisor of PostgreSQL failed:\n{traceback.format_exc()}")
        raise
    sys.exit(0)


class Supervisor:
    """Parent of one PostgreSQL, which it restarts after a crash; `lock` is the supervisor lock, already held."""

    def __init__(self, order: Order, lock: int, report: Report) -> None:
        self._order = order
        self._layout = order.layout
        self._lock = lock
        self._report = report
        self._log = open_log(self._layout.log)
        self._socket_dir: Path | None = None
        self._postmaster: int | None = None
        self._ending = False
        os.dup2(self._log, 1)
        os.dup2(self._log, 2)

    def run(self) -> None:
        before = os.fstat(self._log).st_size
        try:
            self._start()
        except StartError as failure:
            said = tail(self._layout.log, before)
            raise StartError(
                f"{failure}\nIts log, {self._layout.log}, ends with:\n{said}" if said else str(failure)
            ) from None
        self._report.send(READY)
        self._listen_to_signals()
        self._serve(Watch(self._layout, self._lock))

    def _start(self) -> None:
        layout, binaries, log = self._layout, self._order.binaries, self._log
        server = postmaster.claim_server(layout)
        cluster.ensure(layout, binaries, self._order.major, log=log, server=server)
        self._socket_dir = sockets.prepare(layout, self._order.runtime_dir)
        pid = postmaster.launch(layout, binaries, self._socket_dir, log=log, server=server)
        # From here on only PostgreSQL's processes hold it.
        os.close(server)
        postmaster.await_ready(layout, pid)
        self._postmaster = pid
        write_state(layout, State(self._socket_dir, pid, os.getpid()))

    def _serve(self, watch: Watch) -> None:
        watcher = watch.begin()
        while not self._ending:
            ended, status = os.wait()
            if ended == watcher and status == 0:
                break
            if ended == watcher:
                watcher = watch.begin()
            elif ended == self._postmaster:
                self._postmaster = None
                forget_state(self._layout)
                if status == 0:
                    # Stopped on purpose from outside; the next process that needs it starts it again.
                    break
                # Killed or crashed while in use; clients see only a lost connection. Restart before they retry.
                self._start()
        self._finish()

    def _finish(self) -> None:
        forget_state(self._layout)
        # Clear the pid first: a signal that arrives now must not go to a pid that may soon be reused.
        pid, self._postmaster = self._postmaster, None
        if pid is not None:
            postmaster.stop(pid)
        if self._socket_dir is not None:
            sockets.discard(self._layout, self._socket_dir)
        # Before the startup lock, which is released at exit: the next holder of startup must not find this supervisor.
        os.close(self._lock)

    def _listen_to_signals(self) -> None:
        for ending in (signal.SIGTERM, signal.SIGINT):
            signal.signal(ending, self._end)
        signal.signal(signal.SIGALRM, self._tidy)
        signal.setitimer(signal.ITIMER_REAL, LOOK_AT_LOG_EVERY, LOOK_AT_LOG_EVERY)

    def _end(self, *_: object) -> None:
        """Handle a termination signal: stop PostgreSQL, which wakes the main loop, which then ends."""
        self._ending = True
        if self._postmaster is not None:
            os.kill(self._postmaster, signal.SIGINT)

    def _tidy(self, *_: object) -> None:
        keep_small(self._layout.log)
