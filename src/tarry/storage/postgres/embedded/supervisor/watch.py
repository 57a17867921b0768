"""Notice that the last user has left, and make sure that no new one comes while the server stops."""

import fcntl
import os
import signal

from .children import die_with
from .layout import Layout
from .locks import acquire, open_lock


class Watch:
    """Two locks, taken by a child on our behalf: a lock belongs to the open file, which parent and child share.

    A child, since the supervisor waits for processes: one wait hears of both a server that died and users who left.
    """

    def __init__(self, layout: Layout, not_for_child: int) -> None:
        self._startup = open_lock(layout.startup_lock)
        self._users = open_lock(layout.users_lock)
        self._not_for_child = not_for_child

    def begin(self) -> int:
        """The pid of a child that ends with status 0 when nobody is left and, by the startup lock, nobody can come."""
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
            # Given back before asking for the other: who arrives holds startup and asks for users, and both would wait.
            fcntl.flock(self._users, fcntl.LOCK_UN)
            fcntl.flock(self._startup, fcntl.LOCK_EX)
            if acquire(self._users, fcntl.LOCK_EX, deadline=0):
                return
            fcntl.flock(self._startup, fcntl.LOCK_UN)
