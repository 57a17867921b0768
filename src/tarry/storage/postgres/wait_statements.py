"""The verbs of waiting, one statement each: to say that one sleeps, to ring for sleepers, to leave."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from tarry.core.waiting import Waited
from tarry.storage.postgres.statement import Row, Statement, sql
from tarry.storage.postgres.statements import known


@dataclass(frozen=True, slots=True, kw_only=True)
class Sleeper:
    """A process that is about to sleep."""

    who: str | None
    """What others see of it; None: it does not listen, so nobody needs to ring for it."""
    sleep_for: timedelta
    scan_every: timedelta
    """As often it looks where the database cannot tell when something will be deliverable."""
    probe: str | None = None
    """What it wants to hear from itself."""


def wait(queue: str, type: str | None, sleeper: Sleeper, now: datetime | None) -> Statement[Waited]:
    # A little longer than it sleeps: between waking and sleeping again there must be no gap in which nobody rings.
    keep_for = sleeper.sleep_for * 1.1 + timedelta(seconds=1)
    params = {
        "queue": queue,
        "type": type,
        "who": sleeper.who,
        "keep_for": keep_for,
        "scan_every": sleeper.scan_every,
        "probe": sleeper.probe,
        "now": now,
    }

    def decode(rows: list[Row]) -> Waited:
        found = known(queue, rows)[0][0]
        due_in = None if found is None else max(found, timedelta(0))
        rings_for = timedelta(0) if sleeper.who is None else keep_for if due_in is None else min(due_in, keep_for)
        return Waited(due_in, rings_for)

    return Statement(sql("wait") if type is None else sql("wait_typed"), params, decode)


def ring(queue: str, due_at: datetime, now: datetime | None) -> Statement[None]:
    return Statement(sql("ring"), {"queue": queue, "due_at": due_at, "now": now}, lambda rows: None)


def leave(who: str, queue: str | None = None, type: str | None = None) -> Statement[None]:
    return Statement(sql("leave"), {"who": who, "queue": queue, "type": type or ""}, lambda rows: None)


def forget_waiters() -> Statement[None]:
    return Statement(sql("forget_waiters"), {}, lambda rows: None)
