"""Fencing of retries: before an operation is tried again, the session of its last try must have ended.

Nothing is known about the server process behind a broken connection. It may be frozen, or not yet have read what it was
sent, and execute it after the retry has returned: an older offer would replace a newer one, and a drop would delete a
message that was accepted later.
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
    """A server process. Its number alone may be that of another process by now."""

    pid: int
    started_at: datetime


_sessions: WeakKeyDictionary[AnyConnection, ServerSession] = WeakKeyDictionary()


def note_session(conn: AnyConnection, started_at: datetime | None) -> None:
    """When a connection of our own is opened: of a broken one the driver does not know the process any more."""
    if started_at is not None:
        _sessions[conn] = ServerSession(conn.info.backend_pid, started_at)


class Fence:
    """The sessions that may still execute something of one operation.

    Behind a pooler the session is not known, and nothing is fenced.
    """

    def __init__(self, left: list[ServerSession]) -> None:
        """`left`: the sessions of operations of this store that ended without a result, for want of a connection."""
        self._left = left
        self._open: list[ServerSession] = []

    def lost(self, conn: AnyConnection | None) -> None:
        """A try failed on this connection; if it broke, nothing is known about what it has done, or will do."""
        session = None if conn is None or not conn.closed else _sessions.get(conn)
        if session is not None and session not in self._open:
            self._open.append(session)

    def abandon(self) -> None:
        """No further try: the next operation that gets a connection terminates these sessions."""
        self._left += self._open

    @property
    def is_open(self) -> bool:
        """Whether there are sessions to end before the next try."""
        return bool(self._left or self._open)

    def close(self) -> Op[None]:
        """On a new connection, before the next try."""
        for session in list(self._left):  # other threads may do the same: to end a session twice does no harm
            yield from _end([session], 0)
            with suppress(ValueError):  # only now: if this fails, the next operation ends the session
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
    """End these sessions, and return those that have not ended in time."""
    still: list[ServerSession] = []
    for session in sessions:
        params = {"pid": session.pid, "started_at": session.started_at, "within_ms": round(within_s * 1_000)}
        ended = yield from Statement(
            sql("maintenance/terminate_session"), params, lambda rows: not rows or value(rows)
        ).run()
        if not ended:
            still.append(session)
    return still
