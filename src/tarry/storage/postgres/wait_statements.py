"""The verbs of waiting, one statement each: to say that one sleeps, to ring for sleepers, to leave."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from tarry.core.settings import StoreSettings
from tarry.core.waiting import NAP_GROWTH, Waited
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
    longest: timedelta
    """No sleep is longer than this."""
    probe: str | None = None
    """What it wants to hear from itself."""

    @classmethod
    def of(cls, settings: StoreSettings, who: str | None, sleep_for: timedelta, probe: str | None) -> Sleeper:
        longest = max(settings.scan_every, settings.listening_scan_every)
        return cls(who=who, sleep_for=sleep_for, scan_every=settings.scan_every, longest=longest, probe=probe)

    @property
    def keep_for(self) -> timedelta:
        """How long offers notify this process: until the second look from now, and one second for the look itself.

        An offer whose transaction spans the next renewal of the sleep is seen neither by that renewal nor by the sleep
        that it begins. So whatever is due before that sleep ends must notify now.
        """
        return self.sleep_for + min(self.sleep_for * NAP_GROWTH, self.longest) + timedelta(seconds=1)


def wait(queue: str, type: str | None, sleeper: Sleeper, now: datetime | None) -> Statement[Waited]:
    keep_for = sleeper.keep_for
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
