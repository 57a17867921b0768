"""How blocking polls of an in-memory store wait: by its settings, or by a strategy."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import Final

from tarry.core.settings import StoreSettings
from tarry.core.waiting import Lobby
from tarry.storage.memory.strategies import Strategy

ALWAYS: Final = timedelta(days=3650)
_NOTHING = timedelta(0)


def lobby_for(settings: StoreSettings, strategy: Strategy | None) -> Lobby:
    if strategy is None:
        return Lobby(
            scan_every=settings.scan_every,
            listening_scan_every=settings.listening_scan_every,
            monotonic=time.monotonic,
        )
    scan_every = strategy.scan_every or ALWAYS
    return Lobby(
        scan_every=min(settings.scan_every, scan_every),  # a manually moved clock sends no notifications
        listening_scan_every=scan_every,
        monotonic=time.monotonic,
        condition=lambda: strategy.waiting(threading.Condition(), time.monotonic),
    )


def look_in(due_in: timedelta, strategy: Strategy | None) -> timedelta:
    """When to check for a message due in `due_in`: at once if it is due, else when the strategy's timers do."""
    if due_in <= _NOTHING or strategy is None:
        return max(due_in, _NOTHING)
    now_s = time.monotonic()
    timers = strategy.timers()
    timers.start(None, now_s + due_in.total_seconds(), now_s)
    return max(due_in, timedelta(seconds=timers.wake_at() - now_s))
