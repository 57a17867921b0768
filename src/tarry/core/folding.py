"""The life of one key as its events tell it: fold(events) = live table. Which event may follow which, said once."""

from __future__ import annotations

from collections.abc import Mapping

from tarry.core.events import EventKind as K

BEGINS = frozenset({K.OFFERED, K.REDRIVEN})
"""A key that is not live becomes live."""
ENDS = frozenset({K.ACKED, K.BURIED, K.DROPPED, K.MOVED, K.CRON_REPLACED})
"""A live key is live no longer."""
CHANGES = frozenset({K.UPDATED, K.LEASED, K.TOUCHED, K.NACKED, K.RELEASED, K.EXPIRED, K.EDITED, K.CRON_PLANNED})
"""A live key stays live, as the event says."""
SAYS_NOTHING = frozenset(set(K) - BEGINS - ENDS - CHANGES)
"""Facts that are not about the live message: refusals, dead letters given up, the queues themselves."""

NEW_VERSION = frozenset({K.OFFERED, K.REDRIVEN, K.UPDATED, K.EDITED, K.CRON_PLANNED})
"""Events that may bring another version than the event before; all others are about the same one."""

_LIVE = BEGINS | CHANGES
_HELD = frozenset({K.LEASED, K.TOUCHED})
_HELD_BEFORE = _HELD | {K.EXPIRED}
"""A sweeper may tell of an expiry before anybody else has the message; until then its holder may settle it."""
_WAITING = frozenset({K.OFFERED, K.REDRIVEN, K.UPDATED, K.NACKED, K.RELEASED, K.EDITED, K.CRON_PLANNED})

MAY_FOLLOW: Mapping[K, frozenset[K | None]] = {
    K.OFFERED: ENDS | {None},
    K.REDRIVEN: ENDS | {None},
    K.UPDATED: _LIVE,
    K.LEASED: _WAITING | {K.EXPIRED},
    K.TOUCHED: _HELD,
    K.ACKED: _HELD_BEFORE,
    K.NACKED: _HELD_BEFORE,
    K.RELEASED: _HELD_BEFORE,
    # A limit may be lowered below the attempts made: then the next poll finds what nobody holds beyond its last attempt.
    K.EXPIRED: _LIVE,
    K.BURIED: _LIVE,
    K.DROPPED: _LIVE,
    K.EDITED: _LIVE,
    K.MOVED: _LIVE,
    K.CRON_PLANNED: _LIVE | ENDS | {None},
    K.CRON_REPLACED: _LIVE,
}
"""Each kind with what may come right before it in the life of its key; None is nothing at all."""
