"""The states of a message. The page docs/explanation/states.md draws the transitions between them."""

from datetime import datetime
from enum import Enum


class State(Enum):
    DELAYED = "delayed"
    READY = "ready"
    LEASED = "leased"
    DONE = "done"
    DEAD = "dead"


LIVE = (State.DELAYED, State.READY, State.LEASED)


def live_state(*, due_at: datetime, lease_until: datetime | None, now: datetime) -> State:
    """The state, which is derived and never stored. `lease_until` is None without a lease since the offer or release."""
    if lease_until is not None and lease_until > now:
        return State.LEASED
    return State.DELAYED if due_at > now else State.READY
