"""What a verb answers. Values, never exceptions: losing a lease is an ordinary day."""

from __future__ import annotations

from enum import Enum


class Outcome(Enum):
    """What became of an offer."""

    CREATED = "created"
    UPDATED = "updated"
    IGNORED = "ignored"
    """The key was live and the conflict policy, or an identical offer, left it as it was."""
    SUPERSEDED = "superseded"
    """A later entry of the same batch had the same key and won; this one was never stored."""


class Edited(Enum):
    """What became of an edit."""

    UPDATED = "updated"
    """It is a new version; whoever held the old one has lost it."""
    IGNORED = "ignored"
    """It is so already: nothing changed, and a lease stays."""
    LEASED = "leased"
    """Somebody works on it, and the edit was not forced: nothing changed."""
    CHANGED = "changed"
    """It is no longer the version that was named: nothing changed."""
    GONE = "gone"
    """There is no such live message."""


class Settled(Enum):
    """What became of an ack, nack, touch or release."""

    DONE = "done"
    LEASE_LOST = "lease_lost"
    """The message lives, but this token is no longer its lease: it was offered again, taken over or given back."""
    GONE = "gone"
    """The message is no longer live: settled already (also by this very token), dropped, or dead."""
    BUSY = "busy"
    """Answered by touch only: another transaction has locked the message, so nothing was changed. While that transaction
    is open no consumer can lease the message; touch again to learn what became of the lease."""
