"""`MessagesRole` in memory. A poll claims rows under the lock, decodes without it, then leases the unchanged rows.

The caller's decoder could block every other thread or deadlock under the lock. If it raises, its message fails as by a nack.
"""

import builtins
import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, Literal, TypeVar
from uuid import UUID, uuid4

from tarry.core.errors import InvalidPayload, QueueFull
from tarry.core.journal.events import EventKind
from tarry.core.limits import clip_error
from tarry.core.messages import batches
from tarry.core.messages.edits import Edit
from tarry.core.messages.failures import decoder_error
from tarry.core.messages.model import (
    DEFAULT_POLL,
    EVERYTHING,
    BuryReason,
    ConflictRule,
    Decode,
    Draft,
    Failure,
    Filter,
    Lease,
    LeaseId,
    PollOptions,
    StoredMessage,
)
from tarry.core.messages.outcomes import Edited, Outcome, Settled
from tarry.core.messages.retry import Retry
from tarry.core.messages.states import State
from tarry.core.missing_queues import warn_of_polled
from tarry.core.wakeup.wait_queue import WaitHint
from tarry.storage.memory.rows import OFFERED, Row, copied
from tarry.storage.memory.state import ALWAYS, MemoryOperation, MemoryQueue, MemoryRole, MemoryState, locked
from tarry.wire.base import same_fields

P = TypeVar("P")


@dataclass(slots=True, eq=False)
class _Claim(Generic[P]):
    """A row that no other poll sees until it is leased, buried or released, and its decoded payload."""

    row: Row
    token: UUID | None
    """The token of an expired lease: its holder may still ack, nack or release while the payload is being decoded."""
    problem: Literal["exhausted", "undecodable", "decoder raised"] | None
    error: str | None = None
    payload: P | None = None

    def decode(self, decode: Decode[P]) -> None:
        try:
            self.payload = decode(self.row.payload, self.row.content_type)
        except InvalidPayload as error:
            self.problem, self.error = "undecodable", error.message
        except Exception as error:
            self.problem, self.error = "decoder raised", decoder_error(self.row.key, error)

    def is_valid(self, queue: MemoryQueue) -> bool:
        """False if the row was updated, dropped or settled since: that operation has already moved it."""
        return queue.rows.get(self.row.key) is self.row and self.row.token == self.token


class MemoryMessages(MemoryRole):
    @locked
    def offer(self, queue: str, draft: Draft) -> Outcome:
        return offer_one(self._state.used_queue(queue), draft, self._now)

    @locked
    def offer_many(self, queue: str, drafts: Sequence[Draft]) -> builtins.list[Outcome]:
        now = self._now
        used = self._state.used_queue(queue)
        kept, decided = batches.fold(drafts, now)
        _require_capacity(used, kept)
        stored = iter([offer(used, draft, now) for draft in kept])
        return [outcome or next(stored) for outcome in decided]

    def poll(
        self, queue: str, n: int, decode: Decode[P], options: PollOptions = DEFAULT_POLL
    ) -> MemoryOperation[builtins.list[Lease[P]]]:
        return MemoryOperation(lambda: self._poll(queue, n, decode, options) if n > 0 else [])

    def _poll(self, queue: str, n: int, decode: Decode[P], options: PollOptions) -> builtins.list[Lease[P]]:
        with self._state.locked():
            if queue not in self._state.queues and self._state.settings.create_queues:
                warn_of_polled(queue)
            polled = self._state.used_queue(queue)
        claims: builtins.list[_Claim[P]] = []
        try:
            while (missing := n - sum(claim.problem is None for claim in claims)) > 0:
                with self._state.locked() as now:
                    fresh: builtins.list[_Claim[P]] = _claim(polled, missing, now, options)
                    claims += fresh
                for claim in fresh:
                    if claim.problem is None:
                        claim.decode(decode)
                # A bug in a decoder costs one call at most n attempts.
                if not fresh or any(claim.problem == "decoder raised" for claim in fresh):
                    break
            with self._state.locked() as now:
                return self._lease(polled, claims, options, now)
        except BaseException:
            with self._state.locked():
                for claim in claims:
                    if claim.is_valid(polled):
                        polled.wait(claim.row)
            raise

    def _lease(
        self, queue: MemoryQueue, claims: Sequence[_Claim[P]], options: PollOptions, now: datetime
    ) -> builtins.list[Lease[P]]:
        leases: builtins.list[Lease[P]] = []
        for claim in claims:
            if not claim.is_valid(queue):
                continue
            row = claim.row
            if row.has_unrecorded_lease:
                queue.note(EventKind.EXPIRED, row, leased=True)
            if claim.problem == "exhausted":  # not an attempt: the expired lease was counted at its start
                queue.bury(row, "exhausted", None)
                continue
            token = uuid4()
            row.attempt += 1
            until = now + row.leases_for(queue.settings, options.lease_for)
            row.lease(token, since=now, until=until, consumer=options.consumer)
            queue.order.lease(row)
            queue.note(EventKind.LEASED, row, leased=True)
            if claim.problem == "undecodable":
                queue.bury(row, "undecodable", claim.error)
            elif claim.problem == "decoder raised":
                self._fail(queue, row, Failure(LeaseId(row.key, token), claim.error), None)
            else:
                own: dict[str, Any] = {"payload": claim.payload, "headers": copied(row.headers)}
                leases.append(Lease(**same_fields(row, Lease) | own))
        return leases

    def _fail(self, queue: MemoryQueue, row: Row, failure: Failure, retry: Retry | None) -> None:
        """Nack a leased row: the message is due again after the delay, or dead."""
        error = None if failure.error is None else clip_error(failure.error)
        attempts_of_nack = None if retry is None else retry.max_attempts
        allowed = row.attempts_allowed(queue.settings, attempts_of_nack)
        is_exhausted = row.is_exhausted(queue.settings, attempts_of_nack)
        if not is_exhausted:
            policy = row.retry or retry or queue.settings.retry
            after = policy.delay(row.attempt, self._state.random()) if failure.after is None else failure.after
            row.due_at = self._now + after if failure.due_at is None else failure.due_at.astimezone(UTC)
            row.last_error = error if error is not None else row.last_error
        detail = None if allowed is None else {"max_attempts": allowed}
        queue.note(EventKind.NACKED, row, leased=True, error=error, detail=detail)
        if is_exhausted:
            queue.bury(row, "exhausted", error)
        else:
            row.end_lease()
            queue.wait(row)

    @locked
    def ack(self, queue: str, lease_ids: Sequence[LeaseId]) -> builtins.list[Settled]:

        def ack(state: MemoryQueue, row: Row) -> None:
            state.note(EventKind.ACKED, row, leased=True)
            state.remove(row)

        return self._settle("ack", queue, lease_ids, ack)

    @locked
    def nack(self, queue: str, failures: Sequence[Failure], *, retry: Retry | None = None) -> builtins.list[Settled]:
        by_lease: dict[tuple[str, UUID | None], Failure] = {
            (each.lease_id.key, each.lease_id.token): each for each in reversed(failures)
        }

        def nack(state: MemoryQueue, row: Row) -> None:
            self._fail(state, row, by_lease[row.key, row.token], retry)

        return self._settle("nack", queue, [failure.lease_id for failure in failures], nack)

    @locked
    def touch(
        self, queue: str, lease_ids: Sequence[LeaseId], *, lease_for: timedelta | None = None
    ) -> builtins.list[Settled]:
        now = self._now

        def touch(state: MemoryQueue, row: Row) -> Settled | None:
            if row.is_free(now):
                return Settled.LEASE_LOST  # another consumer may lease the message at any time
            row.lease_until = now + row.leases_for(state.settings, lease_for)
            state.order.lease(row)
            state.note(EventKind.TOUCHED, row, leased=True)
            return None

        return self._settle("touch", queue, lease_ids, touch)

    @locked
    def release(
        self,
        queue: str,
        lease_ids: Sequence[LeaseId],
        *,
        due_at: datetime | None = None,
        after: timedelta | None = None,
    ) -> builtins.list[Settled]:
        due_at = due_at if after is None else self._now + after

        def release(state: MemoryQueue, row: Row) -> None:
            row.attempt -= 1
            row.due_at = row.due_at if due_at is None else due_at.astimezone(UTC)
            state.note(EventKind.RELEASED, row, leased=True)
            row.end_lease()
            state.wait(row)

        return self._settle("release", queue, lease_ids, release)

    @locked
    def bury(
        self, queue: str, lease_ids: Sequence[LeaseId], *, error: str | None = None, reason: BuryReason = "buried"
    ) -> builtins.list[Settled]:
        return self._settle("bury", queue, lease_ids, lambda state, row: state.bury(row, reason, error))

    def _settle(
        self, verb: str, queue: str, lease_ids: Sequence[LeaseId], act: Callable[[MemoryQueue, Row], Settled | None]
    ) -> builtins.list[Settled]:
        """Settle one by one, each in the queue of its message, which may have been renamed since the lease. `act` returns
        None for success. Key and token decide; the time matters only for `touch`."""

        def settle(lease_id: LeaseId) -> Settled:
            state = self._state.leased_queue(queue, lease_id)
            row = None if state is None else state.rows.get(lease_id.key)
            if state is None or row is None:
                return Settled.GONE
            settled = act(state, row) if row.token == lease_id.token else Settled.LEASE_LOST
            if settled is Settled.LEASE_LOST:
                state.note(EventKind.REFUSED, row, detail={"verb": verb})
            return settled or Settled.DONE

        return [settle(lease_id) for lease_id in lease_ids]

    def _refused(self, row: Row, version: int | None, *, force: bool) -> Edited | None:
        if version is not None and row.version != version:
            return Edited.CHANGED
        return None if force or row.is_free(self._now) else Edited.LEASED

    @locked
    def bury_by_key(
        self, queue: str, key: str, *, error: str | None = None, version: int | None = None, force: bool = False
    ) -> Edited:
        state = self._state.queue(queue)
        row = state.rows.get(key)
        if row is None:
            return Edited.GONE
        if (refused := self._refused(row, version, force=force)) is not None:
            return refused
        row.end_lease()  # the holder of the lease is not involved
        state.bury(row, "buried", error)
        return Edited.UPDATED

    @locked
    def edit(self, queue: str, key: str, edit: Edit, *, version: int | None = None, force: bool = False) -> Edited:
        state = self._state.queue(queue)
        row = state.rows.get(key)
        if row is None:
            return Edited.GONE
        fields = _edited_fields(edit, self._now)
        if all(_equal(getattr(row, name), value) for name, value in fields.items()):
            return Edited.IGNORED
        if (refused := self._refused(row, version, force=force)) is not None:
            return refused
        if "due_at" in fields:
            fields |= {"planned_at": fields["due_at"], "due_limit": None}
        attempt = row.attempt - (not row.is_free(self._now))
        new = replace(row, version=state.next_version(), attempt=attempt, expired_at=None, **fields)
        new.end_lease()
        state.add(new)
        state.note(EventKind.EDITED, new, detail=edit.detail)
        return Edited.UPDATED

    @locked
    def drop(self, queue: str, key: str, *, version: int | None = None, unless_leased: bool = False) -> bool:
        state = self._state.queue(queue)
        row = state.rows.get(key)
        if row is None or self._refused(row, version, force=not unless_leased) is not None:
            return False
        state.note(EventKind.DROPPED, row)
        state.remove(row)
        return True

    @locked
    def purge(self, queue: str) -> int:
        return self._state.queue(queue).purge()

    @locked
    def read(self, queue: str, key: str) -> StoredMessage[bytes] | None:
        state = self._state.queue(queue)
        row = state.rows.get(key)
        return None if row is None else row.stored(state.name, state.settings, self._now)

    @locked
    def contains(self, queue: str, key: str) -> bool:
        return key in self._state.queue(queue).rows

    @locked
    def list(
        self, queue: str, *, state: State | None = None, limit: int = 100, filter: Filter = EVERYTHING
    ) -> builtins.list[StoredMessage[bytes]]:
        now = self._now
        listed = self._state.queue(queue)
        rows = (row for row in listed.rows.values() if (state is None or row.state(now) is state) and row.is_in(filter))
        first = heapq.nsmallest(max(limit, 0), rows, key=lambda row: (row.due_at, row.version))
        messages = [row.stored(listed.name, listed.settings, now) for row in first]
        return messages if filter.payloads else [replace(message, payload=b"") for message in messages]


class MemoryWakeup(MemoryRole):
    def __init__(self, state: MemoryState) -> None:
        super().__init__(state)
        self.wait_queue = state.wait_queue

    @locked
    def announce(self, queue: str, *, sleep_for: timedelta, type: str | None = None) -> WaitHint:
        """Registers nothing: changes in this process always notify the waiters."""
        return WaitHint(self._state.look_in(self._state.queue(queue), type, self._now), ALWAYS)


def _claim(queue: MemoryQueue, n: int, now: datetime, options: PollOptions) -> list[_Claim[Any]]:
    if queue.paused_at is not None:
        return []
    claims: list[_Claim[Any]] = []
    for row in queue.order.take(n, now, options):
        row.attempts_of_poll = options.max_attempts
        is_exhausted = row.is_exhausted(queue.settings, options.max_attempts)
        claims.append(_Claim(row, row.token, "exhausted" if is_exhausted else None))
    return claims


def _require_capacity(queue: MemoryQueue, drafts: Sequence[Draft]) -> None:
    most = queue.settings.max_depth
    if most is not None and sum(draft.key not in queue.rows for draft in drafts) > max(0, most - len(queue.rows)):
        raise QueueFull.of(queue.name, most)


def offer_one(queue: MemoryQueue, draft: Draft, now: datetime) -> Outcome:
    """Offer a message. Raises `QueueFull` if the key is new and the queue has reached its `max_depth`."""
    _require_capacity(queue, [draft])
    return offer(queue, draft, now)


def offer(queue: MemoryQueue, draft: Draft, now: datetime) -> Outcome:
    live = queue.rows.get(draft.key)
    planned_at, due_limit = _plan(draft, live, now)
    if live is not None and not _replaces(draft, live, planned_at):
        return Outcome.IGNORED
    row = Row(
        **{name: getattr(draft, name) for name in OFFERED},
        headers=copied(draft.headers),
        version=queue.next_version(),
        planned_at=planned_at,
        due_at=planned_at,
        due_limit=due_limit,
        created_at=now if live is None else live.created_at,
    )
    queue.add(row)
    queue.note(EventKind.OFFERED if live is None else EventKind.UPDATED, row)
    return Outcome.CREATED if live is None else Outcome.UPDATED


def _plan(draft: Draft, live: Row | None, now: datetime) -> tuple[datetime, datetime | None]:
    """The due time of the draft, and the limit for later debounces."""
    planned_at = now + draft.after if draft.due_at is None else draft.due_at.astimezone(UTC)
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


def _edited_fields(edit: Edit, now: datetime) -> dict[str, Any]:
    """The row's fields after the edit."""
    fields: dict[str, Any] = {name: getattr(edit, name) for name in edit.named}
    if "payload" in fields:
        fields["content_type"] = edit.content_type
    if "headers" in fields:
        fields["headers"] = copied(edit.headers)
    if "due_at" in fields:
        after = edit.after or timedelta(0)
        fields["due_at"] = now + after if edit.due_at is None else edit.due_at.astimezone(UTC)
    return fields


def _equal(value: Any, other: Any) -> bool:
    """Compare without `max_attempts`, which is a separate field."""
    if isinstance(value, Retry) and isinstance(other, Retry):
        return replace(value, max_attempts=None) == replace(other, max_attempts=None)
    return value == other
