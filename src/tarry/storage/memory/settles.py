"""Settling by the holder of a lease. Key and token decide; the time matters only for `touch`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from tarry.core.events import EventKind
from tarry.core.limits import clip_error
from tarry.core.messages import (
    BuryReason,
    Failure,
    Hold,
)
from tarry.core.outcomes import Settled
from tarry.core.retry import Retry
from tarry.storage.memory.queues import MemoryQueue
from tarry.storage.memory.rows import Row


def ack(queue: MemoryQueue, holds: Sequence[Hold], now: datetime) -> list[Settled]:
    def finish(row: Row) -> Settled:
        queue.note(EventKind.ACKED, row, now, leased=True)
        queue.remove(row)
        return Settled.DONE

    return [_settle(queue, hold, finish, "ack", now) for hold in holds]


def nack(
    queue: MemoryQueue,
    failures: Sequence[Failure],
    now: datetime,
    random: Callable[[], float],
    retry: Retry | None,
) -> list[Settled]:
    policy = retry or queue.settings.retry

    def fail(row: Row, failure: Failure) -> Settled:
        error = _clipped(failure.error)
        asked = None if retry is None else retry.max_attempts
        allowed = row.attempts_allowed(queue.settings, asked)
        detail = None if allowed is None else {"max_attempts": allowed}
        if row.is_exhausted(queue.settings, asked):
            queue.note(EventKind.NACKED, row, now, leased=True, error=error, detail=detail)
            queue.bury(row, "exhausted", error, now)
            return Settled.DONE
        row.due_at = now + _delay(row, failure, policy, random)
        row.last_error = error if error is not None else row.last_error
        queue.note(EventKind.NACKED, row, now, leased=True, error=error, detail=detail)
        row.let_go()
        queue.lines.wait(row)
        return Settled.DONE

    return [_settle(queue, f.hold, lambda row, f=f: fail(row, f), "nack", now) for f in failures]


def touch(queue: MemoryQueue, holds: Sequence[Hold], now: datetime, lease_for: timedelta | None) -> list[Settled]:
    def extend(row: Row) -> Settled:
        if row.is_free(now):
            # Too late, even if it was not leased again yet: the holder must know that another consumer may lease it any
            # time.
            return Settled.LEASE_LOST
        row.lease_until = now + row.leases_for(queue.settings, lease_for)
        queue.lines.hold(row)
        queue.note(EventKind.TOUCHED, row, now, leased=True)
        return Settled.DONE

    return [_settle(queue, hold, extend, "touch", now) for hold in holds]


def release(queue: MemoryQueue, holds: Sequence[Hold], now: datetime, due_at: datetime | None) -> list[Settled]:
    def give_up(row: Row) -> Settled:
        row.attempt -= 1
        row.due_at = row.due_at if due_at is None else due_at.astimezone(UTC)
        queue.note(EventKind.RELEASED, row, now, leased=True)
        row.let_go()
        queue.lines.wait(row)
        return Settled.DONE

    return [_settle(queue, hold, give_up, "release", now) for hold in holds]


def bury(
    queue: MemoryQueue, holds: Sequence[Hold], now: datetime, error: str | None, reason: BuryReason
) -> list[Settled]:
    def end(row: Row) -> Settled:
        queue.bury(row, reason, _clipped(error), now)
        return Settled.DONE

    return [_settle(queue, hold, end, "bury", now) for hold in holds]


def _settle(queue: MemoryQueue, hold: Hold, act: Callable[[Row], Settled], verb: str, now: datetime) -> Settled:
    row = queue.rows.get(hold.key)
    if row is None:
        return Settled.GONE
    settled = act(row) if row.token == hold.token else Settled.LEASE_LOST
    if settled is Settled.LEASE_LOST:
        queue.note(EventKind.REFUSED, row, now, detail={"verb": verb})
    return settled


def _clipped(error: str | None) -> str | None:
    return None if error is None else clip_error(error)


def _delay(row: Row, failure: Failure, policy: Retry, random: Callable[[], float]) -> timedelta:
    if failure.delay is not None:
        return failure.delay
    return (row.retry or policy).delay(row.attempt, random())
