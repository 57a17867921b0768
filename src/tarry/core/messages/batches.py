"""Deduplication of a batch."""

from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec.structs import replace

from tarry.core.messages.model import REPLACE, ConflictRule, Draft
from tarry.core.messages.outcomes import Outcome

_FORCEFUL = (ConflictRule.REPLACE, ConflictRule.DEBOUNCE)
"""Rules that always replace an existing entry."""


def fold(drafts: Sequence[Draft], now: datetime | None) -> tuple[list[Draft], list[Outcome | None]]:
    """The drafts to store, one per key in input order, and the outcomes of the others; None: the store decides.

    Entries with the same key are folded in input order: REPLACE and DEBOUNCE win over the entry before them, KEEP never
    does, EARLIEST does if it is due earlier. An EARLIEST entry that superseded a REPLACE must replace the live message as
    well, even one that is due earlier: applied one by one, the REPLACE would have removed it first. Otherwise both would be
    lost. So its conflict policy becomes REPLACE.

    Without `now` (the database is the clock, and was not queried) an EARLIEST entry that has an instant cannot be
    compared with one that has a delay. Then a delay of zero counts as earlier, since nothing is delivered before now;
    otherwise the first entry stays. Two instants or two delays need no clock."""
    kept, outcomes = list(drafts), list[Outcome | None]([None]) * len(drafts)
    winners: dict[str, int] = {}
    for index, draft in enumerate(drafts):
        last = winners.get(draft.key)
        if last is not None:
            if draft.conflict.rule not in _FORCEFUL:
                if draft.conflict.rule is not ConflictRule.EARLIEST or not _due_earlier(draft, drafts[last], now):
                    outcomes[index] = Outcome.IGNORED
                    continue
                if kept[last].conflict.rule in _FORCEFUL:
                    kept[index] = replace(draft, conflict=REPLACE)
            outcomes[last] = Outcome.SUPERSEDED
        winners[draft.key] = index
    return [kept[index] for index in sorted(winners.values())], outcomes


def _due_earlier(draft: Draft, other: Draft, now: datetime | None) -> bool:
    if draft.due_at is None and other.due_at is None:
        return draft.after < other.after
    at, other_at = _due_at(draft, now), _due_at(other, now)
    if at is not None and other_at is not None:
        return at < other_at
    return draft.due_at is None and not draft.after


def _due_at(draft: Draft, now: datetime | None) -> datetime | None:
    if draft.due_at is not None:
        # Two datetimes of one zone compare by wall clock, which is wrong in the hour that a zone repeats.
        return draft.due_at.astimezone(UTC)
    return None if now is None else now.astimezone(UTC) + draft.after
