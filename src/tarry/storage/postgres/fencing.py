"""Fencing of retries: the session of a failed try must have ended before the operation is retried.

The state of the server process behind a broken connection is unknown. It may be frozen, or may not have read its input yet,
and execute the statement after the retry has returned: an older offer would replace a newer one, and a drop would delete
a message that was accepted later.
"""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from psycopg import AsyncConnection, Connection

from tarry.core.errors import StoreUnavailable
from tarry.storage.postgres.statement import Op, Statement, sql, value

AnyConnection = Connection[Any] | AsyncConnection[Any]

END_WITHIN_S = 5.0
"""How long a retry waits for the server process of the last try to end. A healthy one ends within milliseconds."""


class ServerSession(NamedTuple):
    """A server process. The pid alone is not enough: the system may have reused it."""

    pid: int
    started_at: datetime


_sessions: WeakKeyDictionary[AnyConnection, ServerSession] = WeakKeyDictionary()


def note_session(conn: AnyConnection, started_at: datetime | None) -> None:
    """Record the server process of a new connection: once it is broken, the driver no longer has the pid."""
    if started_at is not None:
        _sessions[conn] = ServerSession(conn.info.backend_pid, started_at)


class Fence:
    """The sessions that may still execute a statement of one operation. Behind a pooler they are unknown and not fenced."""

    def __init__(self, left: list[ServerSession]) -> None:
        """`left`: sessions of this store's operations that failed before they could be fenced."""
        self._left = left
        self._open: list[ServerSession] = []

    def lost(self, conn: AnyConnection | None) -> None:
        """Add the session of a failed try if its connection broke: the session's state is then unknown."""
        session = None if conn is None or not conn.closed else _sessions.get(conn)
        if session is not None and session not in self._open:
            self._open.append(session)

    def abandon(self) -> None:
        """Give up without another try: the store's next operation terminates these sessions."""
        self._left += self._open

    @property
    def is_open(self) -> bool:
        """Whether sessions must be terminated before the next try."""
        return bool(self._left or self._open)

    def close(self) -> Op[None]:
        """Terminate the sessions, on a new connection, before the next try."""
        for session in list(self._left):  # other threads may do the same: terminating a session twice is harmless
            yield from _end([session], 0)
            with suppress(ValueError):  # removed last: if `_end` fails, the next operation terminates the session
                self._left.remove(session)
        still = yield from _end(self._open, END_WITHIN_S)
        if still:
            raise StoreUnavailable(
                f"the connection was lost, and the server process that may still carry out this operation does not end "
                f"(pid {', '.join(str(session.pid) for session in still)}): the outcome is unknown",
                hint="read the state before you repeat the operation; look at the process on the database server",
            )
        self._open.clear()


def _end(sessions: Sequence[ServerSession], within_s: float) -> Op[list[ServerSession]]:
    """Terminate these sessions, and return those that are still running after `within_s`."""
    still: list[ServerSession] = []
    for session in sessions:
        params = {"pid": session.pid, "started_at": session.started_at, "within_ms": round(within_s * 1_000)}
        ended = yield from Statement(
            sql("maintenance/terminate_session"), params, lambda rows: not rows or value(rows)
        ).run()
        if not ended:
            still.append(session)
    return still
