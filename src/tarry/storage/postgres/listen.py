"""What one store hears by the ear of its process, and the proof that it does.

NOTIFY is a hint. Behind a pooler, or on a connection that died without a word, nothing arrives and nothing complains; so a
store sends itself a probe with its ordinary statements (`wait`), and believes the ear only while it hears that.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable

from tarry.core.errors import Refused
from tarry.core.waiting import LineKey, Lobby
from tarry.storage.postgres import ears
from tarry.storage.postgres.ears import EARS, Ear
from tarry.storage.postgres.home import Home

PROBE = "?"
"""How a probe begins; no name of a queue does."""
PROBE_EVERY_S = 10.0
HEARD_WITHIN_S = 5.0
"""A probe that is not heard by then will not be."""

_log = logging.getLogger("tarry.listen")


class Listener:
    """For one store. `who`, `probe` and `sent` may be called from any thread; the rest is called by the ear's."""

    def __init__(self, lobby: Lobby, *, trusted: bool, monotonic: Callable[[], float] = time.monotonic) -> None:
        """`trusted`: rings tell of everything that can happen. On a pinned clock they do not: time passes silently."""
        self._lobby = lobby
        self._trusted = trusted
        self._monotonic = monotonic
        # Not that of the process: what one store of it sleeps for is not what another one does.
        self.name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._ear: Ear | None = None
        self._deaf = False
        self._probes = 0
        self._heard = 0
        self._heard_at = -PROBE_EVERY_S
        self._unheard_since: float | None = None

    def join(self, dsn: str) -> None:
        self._ear = EARS.join(dsn, self)

    @property
    def is_alive(self) -> bool:
        return self._ear is not None and self._ear.is_alive

    def leave(self) -> None:
        """Blocks for a moment if this was the last one: the connection is closed."""
        ear, self._ear = self._ear, None
        if ear is not None:
            EARS.leave(ear, self)
        self.closed()

    @property
    def who(self) -> str | None:
        """The name under which others ring for us; None while we would not hear it."""
        return self.name if self._is_open and not self._deaf else None

    def probe(self) -> str | None:
        """What the next statement is to send us, if it is time."""
        due = not self._lobby.hears or self._monotonic() - self._heard_at >= PROBE_EVERY_S
        if not (self._is_open and due) or self._unheard_since is not None:
            return None
        self._probes += 1
        return f"{PROBE}{self.name}:{self._probes}"

    def sent(self, probe: str | None) -> None:
        """The statement has been committed. Only now does it make sense to listen for it."""
        if probe is not None and int(probe.rpartition(":")[2]) > self._heard and self._unheard_since is None:
            self._unheard_since = self._monotonic()

    def opened(self) -> None:
        self._unheard_since = None
        self._lobby.ring_all()  # whatever was said while nobody listened

    def closed(self) -> None:
        self._unheard_since = None
        self._stop_trusting()

    def hear(self, payload: str) -> None:
        if not payload.startswith(PROBE):
            queue, _, type = payload.partition("/")
            self._lobby.ring(LineKey(queue, type or None))
            return
        name, _, number = payload.removeprefix(PROBE).rpartition(":")
        if name != self.name:
            return
        # Probes may commit in another order than they were sent.
        self._heard = max(self._heard, int(number))
        self._heard_at, self._unheard_since = self._monotonic(), None
        if self._deaf:
            self._deaf = False
            _log.info("notifications arrive again")
        self._lobby.set_hears(hears=self._trusted)

    def ticked(self) -> list[LineKey]:
        if self._unheard_since is not None and self._monotonic() - self._unheard_since > HEARD_WITHIN_S:
            self._unheard_since, self._heard_at = None, self._monotonic()
            self._say_deaf()
        return self._lobby.unwanted(ears.TICK_S)

    @property
    def _is_open(self) -> bool:
        return self._ear is not None and self._ear.is_open

    def _say_deaf(self) -> None:
        if not self._deaf:
            _log.warning(
                "what this process notified itself of did not arrive: waiting polls look every so often instead "
                "(scan_every); give a direct address to be called (listen_dsn, or TARRY_LISTEN_DSN)"
            )
        self._deaf = True
        self._stop_trusting()

    def _stop_trusting(self) -> None:
        if self._lobby.hears:
            self._lobby.set_hears(hears=False)
            self._lobby.ring_all()  # they sleep for as long as they may only while we hear


class Listening:
    """A store's listener, from the first wait until the store is closed."""

    def __init__(self, dsn: str, lobby: Lobby, *, trusted: bool) -> None:
        self._dsn = dsn
        self._lobby = lobby
        self._trusted = trusted
        self._home = Home()
        self._lock = threading.Lock()
        self._listener: Listener | None = None
        self._is_closed = False

    def started(self) -> Listener:
        self._home.check()  # before the lock, which a thread of the other process may have held
        with self._lock:
            if self._is_closed:
                # Whoever is woken by the end of a store must not start what nobody would stop.
                raise Refused("this store is closed", hint="use it inside its with block, or connect again")
            if self._listener is None or not self._listener.is_alive:
                self._listener = Listener(self._lobby, trusted=self._trusted)
                self._listener.join(self._dsn)
            return self._listener

    def close(self) -> None:
        """Blocks for a moment, if nobody else of this process listens."""
        with self._lock:
            self._is_closed = True
            listener, self._listener = self._listener, None
        if listener is not None:
            listener.leave()
