"""The life of a message as one table. The diagram in the docs and the database's `message_state` are checked against it."""

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
    """None as source: not there yet. None as target: gone without a trace but its events."""


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
    """Derived, never stored: `lease_until` is None while nobody has held the message since it was offered or given back."""
    if lease_until is not None and lease_until > now:
        return State.LEASED
    return State.DELAYED if due_at > now else State.READY
