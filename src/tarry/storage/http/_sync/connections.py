# Generated from src/tarry/storage/http/connections.py by tools/generate-blocking. Edit that file, then run `make generate`.
"""The blocking half of `tarry.storage.http.connections`."""

from __future__ import annotations

import threading
from contextlib import suppress

from tarry.core.errors import InvalidState
from tarry.storage.http.connections import Socket
from tarry.storage.http.protocol import Address, HttpRequest, HttpResponse


class ConnectionPool:
    """At most `size` concurrent requests; further ones wait. The connection used last is used first."""

    def __init__(self, address: Address, size: int) -> None:
        self._address = address
        self._all: list[Socket] = []
        self._idle: list[Socket] = []
        self._slots = threading.Semaphore(size)
        self._is_closed = False

    def exchange(self, request: HttpRequest) -> HttpResponse:
        self._acquire(request.reply_s)
        try:
            opened, response = self._take(request.connect_s), HttpResponse()
            try:
                opened.send(request)
                while not response.is_complete:
                    response.receive(opened.receive())
                return response
            finally:
                if response.is_complete and response.keeps_alive:
                    self._idle.append(opened)
                else:
                    self._all.remove(opened)
                    opened.close()
        finally:
            self._slots.release()

    def _acquire(self, within_s: float) -> None:
        if self._slots.acquire(timeout=within_s):
            return
        raise TimeoutError("all connections to the broker are in use")

    def _take(self, within_s: float) -> Socket:
        if self._is_closed:
            raise InvalidState("this client is closed", hint="use it inside its with block, or open another one")
        with suppress(IndexError):  # no check before `pop`: another thread may take the last one
            while (opened := self._idle.pop()).is_stale:
                self._all.remove(opened)
                opened.close()
            return opened
        self._all.append(opened := Socket.connect(self._address, within_s))
        return opened

    def close(self) -> None:
        self._is_closed = True
        for opened in [*self._all]:
            opened.close()
