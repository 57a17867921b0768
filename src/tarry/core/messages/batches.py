"""Deduplication of a batch: the entry to store for each key, and the outcomes of the others."""

from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec.structs import replace

from tarry.core.messages.model import REPLACE, ConflictRule, Draft
from tarry.core.messages.outcomes import Outcome

_FORCEFUL = (ConflictRule.REPLACE, ConflictRule.DEBOUNCE)
"""Rules that always replace an existing entry."""


def fold(drafts: Sequence[Draft], now: datetime | None) -> tuple[list[int], list[Outcome | None]]:
    """The surviving indexes (one per key, in input order), and the outcomes of the others.

    Entries with the same key are folded in input order: REPLACE and DEBOUNCE win over the entry before them, KEEP never
    does, EARLIEST does if it is due earlier. The store decides outcomes of None.

    Without `now` (the database is the clock, and was not queried) an EARLIEST entry that has an instant cannot be
    compared with one that has a delay. Then a delay of zero counts as earlier, since nothing is delivered before now;
    otherwise the first entry stays. Two instants or two delays need no clock."""
    outcomes: list[Outcome | None] = [None] * len(drafts)
    winners: dict[str, int] = {}
    for index, draft in enumerate(drafts):
        winner = winners.get(draft.key)
        if winner is None:
            winners[draft.key] = index
        elif draft.conflict.rule in _FORCEFUL or (
            draft.conflict.rule is ConflictRule.EARLIEST and _due_earlier(draft, drafts[winner], now)
        ):
            outcomes[winner] = Outcome.SUPERSEDED
            winners[draft.key] = index
        else:
            outcomes[index] = Outcome.IGNORED
    return sorted(winners.values()), outcomes


def effective(drafts: Sequence[Draft], survivors: Sequence[int]) -> list[Draft]:
    """The survivors of `fold` as a store must apply them.

    An EARLIEST entry that superseded a REPLACE must replace the live message as well, even one that is due earlier: applied
    one by one, the REPLACE would have removed it first. Otherwise both would be lost."""
    first_forceful: dict[str, int] = {}
    for index, draft in enumerate(drafts):
        if draft.conflict.rule in _FORCEFUL:
            first_forceful.setdefault(draft.key, index)

    def applied(index: int) -> Draft:
        draft = drafts[index]
        inherits = draft.conflict.rule is ConflictRule.EARLIEST and first_forceful.get(draft.key, index) < index
        return replace(draft, conflict=REPLACE) if inherits else draft

    return [applied(index) for index in survivors]


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
