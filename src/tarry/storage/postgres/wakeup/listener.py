"""The notifications of one store, and the proof that they arrive.

NOTIFY is a hint. Behind a pooler, or on a connection that died silently, nothing arrives and nothing fails. So a store sends
itself a probe with its ordinary statements (`wait`), and relies on notifications only while the probes arrive.
"""

import logging
import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable
from typing import Self

from tarry.core.errors import InvalidState
from tarry.core.wakeup.wait_queue import WaitKey, WaitQueue
from tarry.storage.postgres.connections import ForkGuard
from tarry.storage.postgres.wakeup import listener_pool
from tarry.storage.postgres.wakeup.listener_pool import LISTENER_POOL, ListenConnection

PROBE = "?"
"""How a probe begins; no name of a queue does."""
PROBE_EVERY_S = 10.0
RECEIVED_WITHIN_S = 5.0
"""A probe that has not arrived by then will not arrive."""

_log = logging.getLogger("tarry.listen")


class Listener:
    """For one store, from its first wait until it is closed. `started`, `close`, `process`, `probe` and `sent` may be called
    from any thread; the connection's thread calls the rest."""

    def __init__(
        self, dsn: str, wait_queue: WaitQueue, *, trusted: bool, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """`trusted`: every change is notified. Not so on a pinned clock, whose moves send nothing."""
        self._dsn = dsn
        self._wait_queue = wait_queue
        self._trusted = trusted
        self._monotonic = monotonic
        # Not only the process: its stores sleep for different messages.
        host = re.sub(r"[,/]", "_", socket.gethostname())  # these separate the parts of a notification
        self.name = f"{host}:{os.getpid()}:{secrets.token_hex(4)}"
        self._fork_guard = ForkGuard()
        self._lock = threading.Lock()
        self._connection: ListenConnection | None = None
        self._is_closed = False
        self._unreachable = False
        self._probes = 0
        self._received = 0
        self._received_at = -PROBE_EVERY_S
        self._pending_since: float | None = None

    def started(self) -> Self:
        self._fork_guard.check()  # before the lock, which a thread of the other process may have held
        with self._lock:
            if self._is_closed:
                # A consumer that is woken by the close must not join a connection that it would never leave.
                raise InvalidState("this store is closed", hint="use it inside its with block, or connect again")
            if self._connection is None or not self._connection.is_alive:
                self._connection = LISTENER_POOL.join(self._dsn, self)
        return self

    def close(self) -> None:
        """Blocks for a moment if no other store of this process listens: the connection is closed."""
        with self._lock:
            self._is_closed = True
            connection, self._connection = self._connection, None
        if connection is not None:
            LISTENER_POOL.leave(connection, self)
            self.closed()

    @property
    def process(self) -> str | None:
        """The name that other processes notify; None while notifications would not arrive."""
        return self.name if self._is_open and not self._unreachable else None

    def probe(self) -> str | None:
        """The probe for the next statement to send, if one is due."""
        due = not self._wait_queue.is_listening or self._monotonic() - self._received_at >= PROBE_EVERY_S
        if not (self._is_open and due) or self._pending_since is not None:
            return None
        self._probes += 1
        return f"{PROBE}{self.name}:{self._probes}"

    def sent(self, probe: str | None) -> None:
        """The statement has been committed: from now on its probe can arrive."""
        if probe is not None and int(probe.rpartition(":")[2]) > self._received and self._pending_since is None:
            self._pending_since = self._monotonic()

    def opened(self) -> None:
        self._pending_since = None
        self._wait_queue.notify_all()  # notifications before this were missed

    def closed(self) -> None:
        """No notifications arrive until it is opened again."""
        self._pending_since = None
        self._stop_trusting()

    def receive(self, payload: str) -> None:
        if not payload.startswith(PROBE):
            where, _, type = payload.partition("/")
            queue, *named = where.split(",")  # see wakeup/sql/_notify.sql
            within_s = float(named[0]) if named and self.name not in named else 0.0
            self._wait_queue.notify(WaitKey(queue, type or None), within_s=within_s)
            return
        name, _, number = payload.removeprefix(PROBE).rpartition(":")
        if name != self.name:
            return
        # Probes may commit in another order than they were sent.
        self._received = max(self._received, int(number))
        self._received_at, self._pending_since = self._monotonic(), None
        if self._unreachable:
            self._unreachable = False
            _log.info("notifications arrive again")
        self._wait_queue.is_listening = self._trusted

    def ticked(self) -> list[WaitKey]:
        """Called once per `TICK_S`; returns the groups for which notifications are no longer needed."""
        if self._pending_since is not None and self._monotonic() - self._pending_since > RECEIVED_WITHIN_S:
            self._pending_since, self._received_at = None, self._monotonic()
            self._set_unreachable()
        return self._wait_queue.expired_notifications(listener_pool.TICK_S)

    @property
    def _is_open(self) -> bool:
        return self._connection is not None and self._connection.is_open

    def _set_unreachable(self) -> None:
        if not self._unreachable:
            _log.warning(
                "notifications of this process to itself do not arrive: waiting polls scan instead, every scan_every; "
                "set a DSN that bypasses the pooler (listen_dsn, or TARRY_LISTEN_DSN)"
            )
        self._unreachable = True
        self._stop_trusting()

    def _stop_trusting(self) -> None:
        if self._wait_queue.is_listening:
            self._wait_queue.is_listening = False
            self._wait_queue.notify_all()  # their long sleeps rely on notifications
