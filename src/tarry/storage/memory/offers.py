"""Offers to a queue."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from tarry.core import batches
from tarry.core.events import EventKind
from tarry.core.messages import ConflictRule, Draft
from tarry.core.outcomes import Outcome
from tarry.storage.memory.queues import MemoryQueue
from tarry.storage.memory.rows import Row, new_row


def offer(queue: MemoryQueue, draft: Draft, now: datetime) -> Outcome:
    live = queue.rows.get(draft.key)
    planned_at, due_limit = _plan(draft, live, now)
    if live is not None and not _replaces(draft, live, planned_at):
        return Outcome.IGNORED
    row = new_row(
        draft,
        version=queue.next_version(),
        planned_at=planned_at,
        due_limit=due_limit,
        created_at=now if live is None else live.created_at,
    )
    queue.add(row)
    queue.note(EventKind.OFFERED if live is None else EventKind.UPDATED, row, now)
    return Outcome.CREATED if live is None else Outcome.UPDATED


def offer_many(queue: MemoryQueue, drafts: Sequence[Draft], now: datetime) -> list[Outcome]:
    survivors, decided = batches.fold(drafts, now)
    outcomes: dict[int, Outcome] = {
        index: offer(queue, draft, now)
        for index, draft in zip(survivors, batches.effective(drafts, survivors), strict=True)
    }
    return [outcomes[index] if outcome is None else outcome for index, outcome in enumerate(decided)]


def _plan(draft: Draft, live: Row | None, now: datetime) -> tuple[datetime, datetime | None]:
    """The due time of the draft, and the limit for later debounces."""
    planned_at = now + draft.delay if draft.due_at is None else draft.due_at.astimezone(UTC)
    if draft.conflict.rule is not ConflictRule.DEBOUNCE or draft.conflict.max_wait is None:
        return planned_at, None
    own_limit = now + draft.conflict.max_wait
    due_limit = own_limit if live is None or live.due_limit is None else live.due_limit
    return min(planned_at, own_limit, due_limit), due_limit


def _replaces(draft: Draft, live: Row, planned_at: datetime) -> bool:
    match draft.conflict.rule:
        case ConflictRule.KEEP:
            return False
        case ConflictRule.EARLIEST:
            return planned_at < live.planned_at
        case ConflictRule.REPLACE | ConflictRule.DEBOUNCE:
            return not live.equals(draft, planned_at)
