"""The queues of a run and what each is for, and the constants that clients, harness and checker share. Plain data."""

from __future__ import annotations

from dataclasses import dataclass

LEASE_S = 1.0
"""Every lease. Short, so that leases expire while clients are paused, the server restarts or a proxy holds a reply."""
BULK = 2_000
"""From this size on, a batch of fresh messages is stored with COPY."""
PERIODS_S = (1, 2)
"""The schedules change between these periods. Every tick of the longest is a tick of all."""
SCHEDULES = ("nightly", "nightly/2", "night_y", "100%")
"""Names that a pattern match would confuse."""


@dataclass(frozen=True, slots=True)
class QueueKind:
    name: str
    max_attempts: int | None = 8
    hot_keys: int = 0
    """How many keys at a time are offered again and again; all other keys are used once."""
    rotate_s: int = 20
    """After so many seconds there is a new set of hot keys, so that the history of one key stays short."""
    revives: bool = False
    """Dead letters are redriven and discarded here, so a payload may be stored more than once."""


MAIN = QueueKind("main", hot_keys=12)
REGISTER = QueueKind("register", max_attempts=None, hot_keys=6, rotate_s=2)
MORTAL = QueueKind("mortal", max_attempts=2, hot_keys=4, revives=True)
PURGED = QueueKind("main.purged", hot_keys=4)
MOVING = QueueKind("moving")
PAUSED = QueueKind("main-paused")
BULKY = QueueKind("bulk")
WORK = QueueKind("work", max_attempts=4)
REMOTE = QueueKind("remote", hot_keys=6)
CRON = QueueKind("cron", max_attempts=None)

KINDS = {k.name: k for k in (MAIN, REGISTER, MORTAL, PURGED, MOVING, PAUSED, BULKY, WORK, REMOTE, CRON)}
MOVING_NAMES = ("moving-0", "moving-1")
"""The two names between which the queue `moving` is renamed. Histories call it `moving`."""


def stored_name(name: str) -> str:
    """The name that the history uses for a queue of the database."""
    return MOVING.name if name in MOVING_NAMES else name
