"""The ear of a process: one connection of its own that hears who rings, and proves again and again that it does.

NOTIFY is a hint. Behind a pooler, or on a connection that died without a word, nothing arrives and nothing complains; so a
process sends itself a probe with its ordinary statements (`wait`), and believes its ear only while it hears that.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import AsyncConnection

from tarry.core.errors import Refused
from tarry.core.waiting import LineKey, Lobby
from tarry.storage.postgres.connections import keywords
from tarry.storage.postgres.drive import adrive
from tarry.storage.postgres.wait_statements import forget_waiters, leave

CHANNEL = "tarry"
PROBE = "?"
"""How a probe begins; no name of a queue does."""
PROBE_EVERY_S = 10.0
HEARD_WITHIN_S = 5.0
"""A probe that is not heard by then will not be."""
TICK_S = 1.0
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 10.0
POOLED_PAUSE_S = 600.0
"""A pooler does not become a server; but somebody may put another one in its place."""

_log = logging.getLogger("tarry.listen")


class _Pooled(Exception):
    """Whoever answers is not the session we opened: it would hear for us what we never get."""


class Listener:
    """Runs in an event loop, of the program or of a thread; `who`, `probe` and `sent` may be called from any thread."""

    def __init__(
        self, dsn: str, lobby: Lobby, *, trusted: bool, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """`trusted`: rings tell of everything that can happen. On a pinned clock they do not: time passes silently."""
        self._dsn = dsn
        self._lobby = lobby
        self._trusted = trusted
        self._monotonic = monotonic
        self._name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._open = False
        self._deaf = False
        self._complained = False
        self._probes = 0
        self._heard = 0
        self._heard_at = -PROBE_EVERY_S
        self._unheard_since: float | None = None

    @property
    def who(self) -> str | None:
        """The name under which others ring for us; None while we would not hear it."""
        return self._name if self._open and not self._deaf else None

    def probe(self) -> str | None:
        """What the next statement is to send us, if it is time."""
        due = not self._lobby.hears or self._monotonic() - self._heard_at >= PROBE_EVERY_S
        if not (self._open and due) or self._unheard_since is not None:
            return None
        self._probes += 1
        return f"{PROBE}{self._name}:{self._probes}"

    def sent(self, probe: str | None) -> None:
        """The statement has been committed. Only now does it make sense to listen for it."""
        if probe is not None and int(probe.rpartition(":")[2]) > self._heard and self._unheard_since is None:
            self._unheard_since = self._monotonic()

    async def run(self) -> None:
        """Listens until it is cancelled, and comes back whenever it was cut off."""
        failures = 0
        while True:
            started = self._monotonic()
            try:
                await self._listen()
            except _Pooled:
                self._say_deaf("the database is behind a pooler, which does not pass notifications on")
                await asyncio.sleep(POOLED_PAUSE_S)
            except (psycopg.Error, OSError) as error:
                self._complain(error)
            finally:
                self._close()
            failures = 0 if self._monotonic() - started > LONGEST_PAUSE_S else failures + 1
            # Not all at the same moment: a server that has just come back has enough to do.
            jitter = 0.5 + secrets.randbelow(1000) / 1000
            await asyncio.sleep(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(failures - 1, 30)) * jitter)

    async def _listen(self) -> None:
        options: dict[str, Any] = {"application_name": "tarry-listen", "prepare_threshold": None}
        conn: AsyncConnection[Any] = await AsyncConnection.connect(self._dsn, **(keywords(self._dsn) | options))
        try:
            if (await (await conn.execute("select pg_backend_pid()")).fetchone()) != (conn.info.backend_pid,):
                raise _Pooled
            await conn.execute("listen tarry")
            await adrive(conn, forget_waiters().run(), guest=True)
            self._open, self._unheard_since = True, None
            self._lobby.ring_all()  # whatever was said while nobody listened
            while True:
                async for notification in conn.notifies(timeout=TICK_S):
                    self._hear(notification.payload)
                self._judge()
                for key in self._lobby.unwanted(TICK_S):
                    await adrive(conn, leave(self._name, key.queue, key.type).run(), guest=True)
        except asyncio.CancelledError:
            with suppress(psycopg.Error, TimeoutError):
                await asyncio.wait_for(adrive(conn, leave(self._name).run(), guest=True), TICK_S)
            raise
        finally:
            await conn.close()

    def _hear(self, payload: str) -> None:
        if not payload.startswith(PROBE):
            queue, _, type = payload.partition("/")
            self._lobby.ring(LineKey(queue, type or None))
            return
        name, _, number = payload.removeprefix(PROBE).rpartition(":")
        if name != self._name:
            return
        # Probes may commit in another order than they were sent.
        self._heard = max(self._heard, int(number))
        self._heard_at, self._unheard_since = self._monotonic(), None
        if self._deaf or self._complained:
            self._deaf = self._complained = False
            _log.info("notifications arrive again")
        self._lobby.set_hears(hears=self._trusted)

    def _judge(self) -> None:
        if self._unheard_since is not None and self._monotonic() - self._unheard_since > HEARD_WITHIN_S:
            self._unheard_since, self._heard_at = None, self._monotonic()
            self._say_deaf("what this process notified itself of did not arrive")

    def _say_deaf(self, why: str) -> None:
        if not self._deaf:
            _log.warning(
                "%s: waiting polls look every so often instead (scan_every); set listen_dsn to a direct address", why
            )
        self._deaf = True
        self._stop_trusting()

    def _complain(self, error: BaseException) -> None:
        """Once, until it hears again: it tries for as long as somebody waits."""
        if not self._complained:
            self._complained = True
            what = "the connection that listens was lost, and is opened again" if self._open else "cannot listen"
            _log.warning("%s; until then waiting polls look every so often (scan_every): %s", what, str(error).strip())

    def _close(self) -> None:
        self._open, self._unheard_since = False, None
        self._stop_trusting()

    def _stop_trusting(self) -> None:
        if self._lobby.hears:
            self._lobby.set_hears(hears=False)
            self._lobby.ring_all()  # they sleep for as long as they may only while we hear


def _closed() -> Refused:
    """For whoever is woken by the end of a store and would wait on: a new listener would never be stopped."""
    return Refused("this store is closed", hint="use it inside its with block, or connect again")


class ListenerTask:
    """A listener in the event loop of whoever waits first."""

    def __init__(self, make: Callable[[], Listener]) -> None:
        self._make = make
        self._task: asyncio.Task[None] | None = None
        self._listener: Listener | None = None
        self._is_closed = False

    def started(self) -> Listener:
        if self._is_closed:
            raise _closed()
        if self._listener is None or self._task is None or self._task.done():
            self._listener = self._make()
            self._task = asyncio.create_task(self._listener.run(), name="tarry-listen")
        return self._listener

    async def close(self) -> None:
        self._is_closed = True
        task, self._task, self._listener = self._task, None, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])


class ListenerThread:
    """A listener in a thread of its own, for programs that block. A forked child starts its own."""

    def __init__(self, make: Callable[[], Listener]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._listener: Listener | None = None
        self._thread: threading.Thread | None = None
        self._cancel: Callable[[], object] | None = None
        self._is_closed = False

    def started(self) -> Listener:
        if self._pid != os.getpid():
            self._lock, self._pid, self._listener = threading.Lock(), os.getpid(), None
        with self._lock:
            if self._is_closed:
                raise _closed()
            if self._listener is None or self._thread is None or not self._thread.is_alive():
                self._listener = self._make()
                ready = threading.Event()
                self._thread = threading.Thread(
                    target=self._run, args=(self._listener, ready), name="tarry-listen", daemon=True
                )
                self._thread.start()
                ready.wait()
            return self._listener

    def close(self) -> None:
        if self._pid != os.getpid():
            return
        with self._lock:
            self._is_closed = True
            thread, cancel, self._thread, self._listener = self._thread, self._cancel, None, None
        if thread is not None and cancel is not None and thread.is_alive():
            with suppress(RuntimeError):  # its loop has just been closed
                cancel()
            thread.join(5.0)

    def _run(self, listener: Listener, ready: threading.Event) -> None:
        async def run() -> None:
            loop, task = asyncio.get_running_loop(), asyncio.current_task()
            assert task is not None  # noqa: S101 - for the type checker: this is a task
            self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
            ready.set()
            with suppress(asyncio.CancelledError):
                await listener.run()

        asyncio.run(run())
