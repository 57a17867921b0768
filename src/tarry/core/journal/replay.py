"""Transitions of one key: fold(events) = live table. The single definition of which event may follow which."""

from collections.abc import Mapping

from tarry.core.journal.events import EventKind as K

BEGINS = frozenset({K.OFFERED, K.REDRIVEN})
"""A key becomes live."""
ENDS = frozenset({K.ACKED, K.BURIED, K.DROPPED, K.CRON_REPLACED})
"""A live key ceases to be live."""
CHANGES = frozenset({K.UPDATED, K.LEASED, K.TOUCHED, K.NACKED, K.RELEASED, K.EXPIRED, K.EDITED, K.CRON_PLANNED})
"""A live key stays live and takes the state in the event."""
NEUTRAL = frozenset(set(K) - BEGINS - ENDS - CHANGES)
"""Events that do not concern the live message: refusals, discarded dead letters, queue events."""

NEW_VERSION = frozenset({K.OFFERED, K.REDRIVEN, K.UPDATED, K.EDITED, K.CRON_PLANNED})
"""Events that may have another version than the event before; all others concern the same version."""

_LIVE = BEGINS | CHANGES
_HELD = frozenset({K.LEASED, K.TOUCHED})
_HELD_BEFORE = _HELD | {K.EXPIRED}
"""A sweeper may record an expiry before another consumer leases the message; until then the lease can still be settled."""
_WAITING = frozenset({K.OFFERED, K.REDRIVEN, K.UPDATED, K.NACKED, K.RELEASED, K.EDITED, K.CRON_PLANNED})

PREDECESSORS: Mapping[K, frozenset[K | None]] = {
    K.OFFERED: ENDS | {None},
    K.REDRIVEN: ENDS | {None},
    K.UPDATED: _LIVE,
    K.LEASED: _WAITING | {K.EXPIRED},
    K.TOUCHED: _HELD,
    K.ACKED: _HELD_BEFORE,
    K.NACKED: _HELD_BEFORE,
    K.RELEASED: _HELD_BEFORE,
    # max_attempts may be lowered below the attempts made: the next poll then finds an unleased message past its last.
    K.EXPIRED: _LIVE,
    K.BURIED: _LIVE,
    K.DROPPED: _LIVE,
    K.EDITED: _LIVE,
    K.CRON_PLANNED: _LIVE | ENDS | {None},
    K.CRON_REPLACED: _LIVE,
}
"""Per kind, the kinds that may immediately precede it for the same key; None: no event at all."""
