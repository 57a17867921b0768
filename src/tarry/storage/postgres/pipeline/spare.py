# pyright: basic
"""A cache of one recently used ADBC connection. ADBC reads all types of the database on connect, which takes longer
than reading a slice, and the next task of the same process usually follows soon.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar

IDLE_FOR_S = 5.0
"""Long enough for the next task of a job, too short for the next run."""

R = TypeVar("R")


class Spare:
    """At most one cached connection per database and process: a forked child does not use its parent's."""

    def __init__(self, connect: Callable[[str], Any], idle_for_s: float = IDLE_FOR_S) -> None:
        self._connect = connect
        self._idle_for_s = idle_for_s
        self._lock = threading.Lock()
        self._kept: dict[tuple[int, str], tuple[Any, threading.Timer]] = {}

    def using(self, dsn: str, work: Callable[[Any], R], gone: type[Exception]) -> R:
        """Run `work` on the cached connection; on a new one if there is none or it is dead. `work` only reads."""
        conn = self._taken(dsn)
        if conn is not None:
            try:
                return self._used(dsn, conn, work)
            except gone:
                pass  # if the connection was not the cause, the new one fails too
        return self._used(dsn, self._connect(dsn), work)

    def _used(self, dsn: str, conn: Any, work: Callable[[Any], R]) -> R:
        try:
            done = work(conn)
        except BaseException:
            conn.close()
            raise
        self._keep(dsn, conn)
        return done

    def _taken(self, dsn: str) -> Any:
        with self._lock:
            found = self._kept.pop((os.getpid(), dsn), None)
        if found is None:
            return None
        found[1].cancel()
        return found[0]

    def _keep(self, dsn: str, conn: Any) -> None:
        timer = threading.Timer(self._idle_for_s, self._drop, (dsn, conn))
        timer.daemon = True
        with self._lock:
            if (os.getpid(), dsn) in self._kept:  # another thread was faster
                conn.close()
                return
            self._kept[os.getpid(), dsn] = conn, timer
        timer.start()

    def _drop(self, dsn: str, conn: Any) -> None:
        with self._lock:
            found = self._kept.get((os.getpid(), dsn))
            if found is None or found[0] is not conn:  # taken in the meantime
                return
            del self._kept[os.getpid(), dsn]
        conn.close()
