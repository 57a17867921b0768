"""Detects that the last user has left, and excludes new users while the server stops."""

import fcntl
import os
import signal

from .children import die_with
from .layout import Layout
from .locks import acquire, open_lock


class Watch:
    """Two locks, acquired by a child process: a lock belongs to the open file description, which parent and child
    share.

    A child, because the supervisor waits for processes: one wait covers both a dead server and the departure of the
    last user.
    """

    def __init__(self, layout: Layout, not_for_child: int) -> None:
        self._startup = open_lock(layout.startup_lock)
        self._users = open_lock(layout.users_lock)
        self._not_for_child = not_for_child

    def begin(self) -> int:
        """Start a child that exits with status 0 when there are no users and, by the startup lock, none can arrive.
        Returns its pid.
        """
        parent = os.getpid()
        child = os.fork()
        if child == 0:
            try:
                for handled in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
                    signal.signal(handled, signal.SIG_DFL)
                die_with(parent, signal.SIGKILL)
                os.close(self._not_for_child)
                self._until_nobody_is_left()
            except BaseException:
                os._exit(1)
            os._exit(0)
        return child

    def _until_nobody_is_left(self) -> None:
        while True:
            fcntl.flock(self._users, fcntl.LOCK_EX)
            # Released before the other lock is requested: a new user holds startup and requests users, which would
            # deadlock.
            fcntl.flock(self._users, fcntl.LOCK_UN)
            fcntl.flock(self._startup, fcntl.LOCK_EX)
            if acquire(self._users, fcntl.LOCK_EX, deadline=0):
                return
            fcntl.flock(self._startup, fcntl.LOCK_UN)
