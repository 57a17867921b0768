"""The state machine of a message. Tests compare the diagram in the docs and the database's `message_state` with it."""

from datetime import datetime
from enum import Enum
from typing import NamedTuple


class State(Enum):
    DELAYED = "delayed"
    READY = "ready"
    LEASED = "leased"
    DONE = "done"
    DEAD = "dead"


LIVE = (State.DELAYED, State.READY, State.LEASED)


class Transition(NamedTuple):
    source: State | None
    by: str
    target: State | None
    """Source None: the message does not exist yet. Target None: only its events remain."""


_BY_VERB: tuple[tuple[tuple[State | None, ...], str, tuple[State | None, ...]], ...] = (
    ((None, *LIVE), "offer", (State.DELAYED, State.READY)),
    ((State.DELAYED,), "time", (State.READY,)),
    (LIVE, "edit", (State.DELAYED, State.READY)),
    ((State.READY,), "poll", (State.LEASED,)),
    ((State.LEASED,), "touch", (State.LEASED,)),
    ((State.LEASED,), "ack", (State.DONE,)),
    ((State.LEASED,), "nack", (State.DELAYED, State.READY, State.DEAD)),
    ((State.LEASED,), "bury", (State.DEAD,)),
    ((State.LEASED,), "release", (State.READY, State.DELAYED)),
    ((State.LEASED,), "expiry", (State.READY, State.DEAD)),
    ((State.DEAD,), "redrive", (State.READY,)),
    ((State.DEAD,), "discard", (None,)),
    (LIVE, "drop", (None,)),
)
TRANSITIONS = tuple(
    Transition(source, by, target) for sources, by, targets in _BY_VERB for source in sources for target in targets
)


def live_state(*, due_at: datetime, lease_until: datetime | None, now: datetime) -> State:
    """The state, which is derived and never stored. `lease_until` is None without a lease since the offer or release."""
    if lease_until is not None and lease_until > now:
        return State.LEASED
    return State.DELAYED if due_at > now else State.READY
