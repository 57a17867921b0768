"""Operation results. Expected outcomes such as a lost lease are values; exceptions signal failures."""

from enum import Enum


class Outcome(Enum):
    """The outcome of an offer."""

    CREATED = "created"
    UPDATED = "updated"
    IGNORED = "ignored"
    """The live message is unchanged, by the conflict policy or because the offer was identical."""
    SUPERSEDED = "superseded"
    """A later entry of the same batch has the same key and won; this one was not stored."""


class Edited(Enum):
    """The outcome of an edit."""

    UPDATED = "updated"
    """There is a new version; a lease of the old one is lost."""
    IGNORED = "ignored"
    """The message already had these values: nothing changed, and a lease stays."""
    LEASED = "leased"
    """A consumer has leased the message, and the edit was not forced: nothing changed."""
    CHANGED = "changed"
    """The message no longer has the given version: nothing changed."""
    GONE = "gone"
    """There is no such live message."""


class Settled(Enum):
    """The outcome of an ack, nack, touch, release or bury."""

    DONE = "done"
    LEASE_LOST = "lease_lost"
    """The message is live, but the token is not its lease: it was offered again, leased again or released."""
    GONE = "gone"
    """The message is no longer live: settled (possibly with this token), dropped, or dead."""
    BUSY = "busy"
    """Only by touch: another transaction has locked the message, so nothing was changed. While that transaction is open,
    no consumer can lease the message; touch again to learn whether the lease still exists."""
