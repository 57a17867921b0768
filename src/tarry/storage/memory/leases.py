"""Polling in three steps: claim under the lock, decode without it, then lease what is still unchanged.

Decoding runs code of the caller: under the lock it could block every other thread, or deadlock. A decoder that raises
fails its own message, as a nack would.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Generic, TypeVar
from uuid import UUID, uuid4

from tarry.core.errors import InvalidPayload
from tarry.core.events import EventKind
from tarry.core.failures import decoder_error
from tarry.core.limits import clip_error
from tarry.core.messages import Decode, Failure, Hold, Lease
from tarry.storage.memory import settles
from tarry.storage.memory.queues import MemoryQueue
from tarry.storage.memory.rows import Row, copied

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Claim:
    """A row that no other poll sees until it is leased, buried or given back."""

    row: Row
    token: UUID | None
    """The token of an expired lease: its holder may still ack, nack or release while the payload is being decoded."""
    exhausted: bool

    def holds(self, queue: MemoryQueue) -> bool:
        return queue.rows.get(self.row.key) is self.row and self.row.token == self.token


@dataclass(frozen=True, slots=True)
class Decoded(Generic[P]):
    claim: Claim
    payload: P


@dataclass(frozen=True, slots=True)
class Doomed:
    claim: Claim
    reason: str
    error: str | None
    attempts: int
    """What this poll adds to the attempts: an expired lease was counted when it began."""


@dataclass(frozen=True, slots=True)
class Broken:
    """The decoder raised: a failed attempt."""

    claim: Claim
    error: str


Verdict = Decoded[P] | Doomed | Broken


def claim(
    queue: MemoryQueue, n: int, now: datetime, *, type: str | None, max_attempts: int | None, lowest_first: bool
) -> list[Claim]:
    if queue.paused_at is not None:
        return []
    rows = queue.lines.take(n, now, type, lowest_first=lowest_first)
    for row in rows:
        row.attempts_asked = max_attempts
    return [Claim(row, row.token, row.is_exhausted(queue.settings, max_attempts)) for row in rows]


def judge(claimed: Claim, decode: Decode[P]) -> Verdict[P]:
    row = claimed.row
    if claimed.exhausted:
        return Doomed(claimed, "exhausted", None, attempts=0)
    try:
        return Decoded(claimed, decode(row.payload, row.content_type))
    except InvalidPayload as error:
        return Doomed(claimed, "undecodable", clip_error(str(error)), attempts=1)
    except Exception as error:
        return Broken(claimed, decoder_error(row.key, error))


def give_back(queue: MemoryQueue, claims: Sequence[Claim]) -> None:
    for claimed in claims:
        if claimed.holds(queue):
            queue.lines.wait(claimed.row)


def settle(
    queue: MemoryQueue,
    verdicts: Sequence[Verdict[P]],
    now: datetime,
    *,
    lease_for: timedelta | None,
    consumer: str | None,
    random: Callable[[], float],
) -> list[Lease[P]]:
    leases: list[Lease[P]] = []
    for verdict in verdicts:
        if not verdict.claim.holds(queue):
            continue  # Updated, dropped or settled meanwhile: that operation has already placed it.
        row = verdict.claim.row
        if row.token is not None and row.expired_at is None:
            queue.note(EventKind.EXPIRED, row, now, leased=True)
        if isinstance(verdict, Doomed):
            if verdict.attempts:
                _hold(queue, row, now, lease_for, consumer)
            queue.bury(row, verdict.reason, verdict.error, now)
        elif isinstance(verdict, Broken):
            token, _ = _hold(queue, row, now, lease_for, consumer)
            settles.nack(queue, [Failure(Hold(row.key, token), verdict.error)], now, random, None)
        else:
            leases.append(_lease(queue, row, verdict.payload, now, lease_for, consumer))
    return leases


def _lease(
    queue: MemoryQueue, row: Row, payload: P, now: datetime, lease_for: timedelta | None, consumer: str | None
) -> Lease[P]:
    token, lease_until = _hold(queue, row, now, lease_for, consumer)
    return Lease(
        key=row.key,
        payload=payload,
        version=row.version,
        token=token,
        attempt=row.attempt,
        priority=row.priority,
        due_at=row.due_at,
        lease_until=lease_until,
        leased_at=now,
        type=row.type,
        headers=copied(row.headers),
        content_type=row.content_type,
    )


def _hold(
    queue: MemoryQueue, row: Row, now: datetime, lease_for: timedelta | None, consumer: str | None
) -> tuple[UUID, datetime]:
    token, lease_until = uuid4(), now + row.leases_for(queue.settings, lease_for)
    row.attempt += 1
    row.hold(token, since=now, until=lease_until, consumer=consumer)
    queue.lines.hold(row)
    queue.note(EventKind.LEASED, row, now, leased=True)
    return token, lease_until
