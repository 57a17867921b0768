"""The state machine of a message. Tests compare the diagram in the docs and the database's `message_state` with it."""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import NamedTuple


class State(Enum):
    DELAYED = "delayed"
    READY = "ready"
    LEASED = "leased"
    DONE = "done"
    DEAD = "dead"


class Transition(NamedTuple):
    source: State | None
    by: str
    target: State | None
    """Source None: the message does not exist yet. Target None: only its events remain."""


TRANSITIONS: tuple[Transition, ...] = (
    Transition(None, "offer", State.DELAYED),
    Transition(None, "offer", State.READY),
    Transition(State.DELAYED, "time", State.READY),
    Transition(State.DELAYED, "offer", State.DELAYED),
    Transition(State.DELAYED, "offer", State.READY),
    Transition(State.READY, "offer", State.DELAYED),
    Transition(State.READY, "offer", State.READY),
    Transition(State.LEASED, "offer", State.DELAYED),
    Transition(State.LEASED, "offer", State.READY),
    Transition(State.DELAYED, "edit", State.DELAYED),
    Transition(State.DELAYED, "edit", State.READY),
    Transition(State.READY, "edit", State.DELAYED),
    Transition(State.READY, "edit", State.READY),
    Transition(State.LEASED, "edit", State.DELAYED),
    Transition(State.LEASED, "edit", State.READY),
    Transition(State.READY, "poll", State.LEASED),
    Transition(State.LEASED, "touch", State.LEASED),
    Transition(State.LEASED, "ack", State.DONE),
    Transition(State.LEASED, "nack", State.DELAYED),
    Transition(State.LEASED, "nack", State.READY),
    Transition(State.LEASED, "nack", State.DEAD),
    Transition(State.LEASED, "bury", State.DEAD),
    Transition(State.LEASED, "release", State.READY),
    Transition(State.LEASED, "release", State.DELAYED),
    Transition(State.LEASED, "expiry", State.READY),
    Transition(State.LEASED, "expiry", State.DEAD),
    Transition(State.DEAD, "redrive", State.READY),
    Transition(State.DEAD, "purge", None),
    Transition(State.DELAYED, "drop", None),
    Transition(State.READY, "drop", None),
    Transition(State.LEASED, "drop", None),
)

LIVE = (State.DELAYED, State.READY, State.LEASED)


def live_state(*, due_at: datetime, lease_until: datetime | None, now: datetime) -> State:
    """The state, derived and never stored. `lease_until` is None if there was no lease since the offer or the last
    release.
    """
    if lease_until is not None and lease_until > now:
        return State.LEASED
    return State.DELAYED if due_at > now else State.READY
