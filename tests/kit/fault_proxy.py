"""A TCP proxy between a client and a server that can cut, delay, swallow and black-hole what passes through it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, Self

from psycopg.conninfo import conninfo_to_dict, make_conninfo

Direction = Literal["to_server", "to_client"]
_BOTH: tuple[Direction, ...] = ("to_server", "to_client")
_CHUNK = 65_536


class FaultProxy:
    """Listens on `port` of 127.0.0.1 and forwards to `target`: a path (unix socket) or a pair of host and port.

    Faults apply to all connections, present and later, until `heal`; a cut applies to the present ones.
    """

    def __init__(self, target: str | tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.forwarded: dict[Direction, int] = dict.fromkeys(_BOTH, 0)
        """Bytes since the beginning."""
        self._links: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._delay_s = 0.0
        self._held: set[Direction] = set()
        self._dropped: set[Direction] = set()
        self._changed = threading.Condition()
        self._closed = False
        threading.Thread(target=self._accept, name="fault-proxy", daemon=True).start()

    def cut(self) -> None:
        """Close every connection, on both sides."""
        with self._lock:
            links, self._links = self._links, set()
        for link in links:
            with suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
            link.close()

    def swallow_replies(self) -> None:
        """Read what the server sends, and never pass it on."""
        self._set(dropped={"to_client"})

    def black_hole(self, direction: Direction) -> None:
        """Read nothing more in one direction: a partition of one way, or a half-open connection."""
        self._set(held={direction})

    def delay(self, seconds: float) -> None:
        """Hold every piece back for so long, in both directions."""
        self._set(delay_s=seconds)

    def heal(self) -> None:
        """Forward as usual. What was swallowed stays lost."""
        self._set()

    def close(self) -> None:
        self._closed = True
        self.heal()
        self._listener.close()
        self.cut()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _set(
        self, *, held: set[Direction] | None = None, dropped: set[Direction] | None = None, delay_s: float = 0.0
    ) -> None:
        with self._changed:
            self._held, self._dropped, self._delay_s = held or set(), dropped or set(), delay_s
            self._changed.notify_all()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
                server = self._connected()
            except OSError:
                continue
            with self._lock:
                self._links |= {client, server}
            for source, sink, direction in ((client, server, "to_server"), (server, client, "to_client")):
                threading.Thread(target=self._pump, args=(source, sink, direction), daemon=True).start()

    def _connected(self) -> socket.socket:
        if isinstance(self._target, tuple):
            return socket.create_connection(self._target)
        link = socket.socket(socket.AF_UNIX)
        link.connect(self._target)
        return link

    def _pump(self, source: socket.socket, sink: socket.socket, direction: Direction) -> None:
        with suppress(OSError):
            while data := source.recv(_CHUNK):
                with self._changed:
                    self._changed.wait_for(lambda: direction not in self._held)
                    if self._delay_s:
                        self._changed.wait(self._delay_s)
                    dropped = direction in self._dropped
                if not dropped:
                    sink.sendall(data)
                    self.forwarded[direction] += len(data)
        for link in (source, sink):
            with suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._links -= {source, sink}
        source.close()


@contextmanager
def proxied(dsn: str) -> Generator[tuple[FaultProxy, str]]:
    """A proxy in front of the PostgreSQL server of this DSN (over its unix socket), and the DSN through it."""
    parts = conninfo_to_dict(dsn)
    target = str(Path(str(parts["host"])) / f".s.PGSQL.{parts.get('port', 5432)}")
    with FaultProxy(target) as proxy:
        yield proxy, make_conninfo(dsn, host="127.0.0.1", port=proxy.port, sslmode="disable", gssencmode="disable")
