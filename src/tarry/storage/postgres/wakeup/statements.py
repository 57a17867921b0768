"""Statements of wakeup: wait, notify, leave."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from tarry.core.wakeup.wait_queue import NAP_GROWTH, WaitHint
from tarry.storage.postgres.messages.statements import known
from tarry.storage.postgres.statement import Row, Statement, bind, sql


@dataclass(frozen=True, slots=True, kw_only=True)
class Sleeper:
    """A process that is about to sleep."""

    process: str | None
    """Its name; None: it does not listen, so it is not notified."""
    sleep_for: timedelta
    scan_every: timedelta
    """How often it polls where the database does not know when something will be deliverable."""
    longest: timedelta
    """No sleep is longer than this."""
    probe: str | None = None
    """The notification that it sends to itself."""

    @property
    def keep_for(self) -> timedelta:
        """How long offers notify this process: until the second poll from now, and one second for the poll itself.

        An offer whose transaction spans the next renewal of the sleep is seen neither by that renewal nor by the sleep
        that it begins. So whatever is due before that sleep ends must notify now.
        """
        return self.sleep_for + min(self.sleep_for * NAP_GROWTH, self.longest) + timedelta(seconds=1)


def wait(queue: str, type: str | None, sleeper: Sleeper, now: datetime | None) -> Statement[WaitHint]:
    keep_for = sleeper.keep_for
    params = {
        "queue": queue,
        "type": type,
        "process": sleeper.process,
        "keep_for": keep_for,
        "scan_every": sleeper.scan_every,
        "probe": sleeper.probe,
        "now": now,
    }

    def decode(rows: list[Row]) -> WaitHint:
        due_in = known(queue, rows)[0].due_in
        due_in = None if due_in is None else max(due_in, timedelta(0))
        notified_for = (
            timedelta(0) if sleeper.process is None else keep_for if due_in is None else min(due_in, keep_for)
        )
        return WaitHint(due_in, notified_for)

    return Statement(sql("wakeup/wait") if type is None else sql("wakeup/wait:typed"), params, decode)


def notify(queue: str, due_at: datetime, now: datetime | None) -> Statement[None]:
    return bind("wakeup/notify", queue=queue, due_at=due_at, now=now)


def leave(process: str, queue: str | None = None, type: str | None = None) -> Statement[None]:
    return bind("wakeup/leave", process=process, queue=queue, type=type or "")


def delete_stale_waiters() -> Statement[None]:
    return bind("wakeup/delete_stale_waiters")
