"""Journal statements: the timeline of a key, partitions, and journals that were restored from a dump."""

from tarry.core.journal.events import KINDS, Event
from tarry.storage.postgres.arrays import TextArray
from tarry.storage.postgres.messages.statements import known, storable
from tarry.storage.postgres.statement import Op, Statement, bind, made, value

event = made(Event)
"""The decoder of the columns of journal/sql/_event.sql."""


def prefer_bitmap_scans() -> Statement[None]:
    """Set the planner for a statement that relies on event_find, until the transaction ends. Not on a caller's connection:
    the rest of its transaction must keep its settings."""
    return bind("journal/prefer_bitmap_scans")


def timeline(queue: str, key: str, limit: int, before: int | None = None) -> Statement[list[Event]]:
    # Filtered in the statement: fewer rows than `limit` mean the end.
    params = {"queue": queue, "key": key, "before": before, "limit": storable(limit), "kinds": TextArray(sorted(KINDS))}
    return bind(
        "journal/timeline", lambda rows: [event(row) for row in known(queue, rows) if row.id is not None], **params
    )


def is_foreign() -> Op[bool]:
    """Whether the journal was restored from a dump and not adopted. In a separate transaction."""
    yield from prefer_bitmap_scans().run()
    return (yield from bind("journal/is_foreign", value).run())


def first_is_foreign() -> Statement[bool]:
    """The same for the first event only."""
    return bind("journal/first_is_foreign", value)


def adopt() -> Op[int]:
    """Assign a restored journal to this server and return the number of its events. In a separate transaction."""
    yield from prefer_bitmap_scans().run()
    return (yield from bind("journal/adopt", value).run())


def create_partitions(days: int) -> Statement[int]:
    return bind("journal/partitions", value, days=days)
