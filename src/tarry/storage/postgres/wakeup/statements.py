"""Statements of wakeup: wait, notify, leave."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from tarry.core.wakeup.wait_queue import SLEEP_GROWTH, WaitHint
from tarry.storage.postgres.messages.statements import HEAD, ScanPosition, known, starting_at
from tarry.storage.postgres.statement import Row, Statement, bind, sql


def wait(
    queue: str,
    type: str | None,
    now: datetime | None,
    positions: Sequence[ScanPosition] = HEAD,
    *,
    process: str | None,
    sleep_for: timedelta,
    scan_every: timedelta,
    longest: timedelta,
    probe: str | None = None,
) -> Statement[WaitHint]:
    """Register a process that is about to sleep, and that polls every `scan_every` where the database does not know when
    something will be deliverable. No sleep is longer than `longest`. Without a name it does not listen, and is not notified;
    `probe` is the notification that it sends to itself."""
    # Offers notify it until the second poll from now, and one second for the poll itself: an offer whose transaction spans
    # the next renewal of the sleep is seen neither by that renewal nor by the sleep that it begins.
    keep_for = sleep_for + min(sleep_for * SLEEP_GROWTH, longest) + timedelta(seconds=1)
    about = {"queue": queue, "type": type, "process": process, "probe": probe, "now": now}
    params = {**about, "keep_for": keep_for, "scan_every": scan_every, **starting_at(positions)}

    def decode(rows: list[Row]) -> WaitHint:
        due_in = known(queue, rows)[0].due_in
        due_in = None if due_in is None else max(due_in, timedelta(0))
        notified_for = timedelta(0) if process is None else keep_for if due_in is None else min(due_in, keep_for)
        return WaitHint(due_in, notified_for)

    return Statement(sql("wakeup/wait") if type is None else sql("wakeup/wait:typed"), params, decode)


def notify(queue: str, due_at: datetime, now: datetime | None) -> Statement[None]:
    return bind("wakeup/notify", queue=queue, due_at=due_at, now=now)


def leave(process: str, queue: str | None = None, type: str | None = None) -> Statement[None]:
    return bind("wakeup/leave", process=process, queue=queue, type=type or "")


def delete_stale_waiters() -> Statement[None]:
    return bind("wakeup/delete_stale_waiters")
