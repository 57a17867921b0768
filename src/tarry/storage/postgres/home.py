"""A store belongs to the process that opened it."""

from __future__ import annotations

import os

from tarry.core.errors import Refused


class Home:
    """Sockets survive a fork, and two processes that speak on one lose each other's answers. So a child is told, and the
    connections of its parent are left alone."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def is_here(self) -> bool:
        return self._pid == os.getpid()

    def check(self) -> None:
        if not self.is_here:
            raise Refused(
                "this app was opened by another process, which then forked this one",
                hint="connect after the fork: each process has its own app",
            )
