"""Every verb of the store as an op, with what the shell knows filled in: the clock, the cursors, the settings.

`Verbs` is what the blocking and the awaiting shell share; they differ only in how an op is driven.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from time import monotonic
from typing import Any, TypeVar

from tarry.core.audit import Audited
from tarry.core.clock import Clock
from tarry.core.editing import Edit
from tarry.core.events import Event
from tarry.core.following import EventPage
from tarry.core.keys import ApiKey
from tarry.core.leading import Leadership
from tarry.core.messages import (
    BuryReason,
    Counts,
    Decode,
    Draft,
    Failure,
    Filter,
    Hold,
    Lease,
    StoredMessage,
)
from tarry.core.once import Answered, Once
from tarry.core.outcomes import Edited, Outcome, Settled
from tarry.core.retry import Retry
from tarry.core.settings import QueueInfo, QueueSettings
from tarry.core.states import State
from tarry.core.waiting import Waited
from tarry.storage.postgres import (
    answers,
    following,
    key_statements,
    ops,
    queue_statements,
    statements,
    wait_statements,
)
from tarry.storage.postgres.chores import ChoreVerbs
from tarry.storage.postgres.cron_verbs import CronVerbs
from tarry.storage.postgres.cursor import Cursor
from tarry.storage.postgres.statement import Op, Statement

P = TypeVar("P")
R = TypeVar("R")


class Verbs(ChoreVerbs):
    def __init__(self, clock: Clock, *, create: bool) -> None:
        """`create`: an offer or a poll creates its queue if it is missing."""
        self._clock = clock
        self._create = create
        self._cursors: dict[tuple[str, str | None], Cursor] = {}
        self.cron = CronVerbs(clock, self.offer_many, self._known)

    def offer_many(self, queue: str, drafts: Sequence[Draft], *, again: bool = False) -> Op[list[Outcome]]:
        offer = ops.offer_again if again else ops.offer_many
        return self._creating(queue, lambda now: offer(queue, drafts, now))

    def offer_once(self, queue: str, items: Sequence[answers.OfferOnce]) -> Op[list[Answered | None]]:
        return self._creating(queue, lambda now: answers.offer_once(queue, items, now))

    def recall(self, request: Once) -> Op[answers.Recalled]:
        return answers.recall([request]).run()

    def keep(self, request: Once, answered: Answered) -> Op[None]:
        return answers.keep([(request, answered)], self._clock.pinned()).run()

    def forget_answers(self, older_than: timedelta, limit: int, lead: Leadership | None) -> Op[int]:
        return answers.forget(older_than, limit, lead, self._clock.pinned()).run()

    def lease(
        self,
        queue: str,
        n: int,
        decode: Decode[P],
        *,
        type: str | None,
        lease_for: timedelta | None,
        consumer: str | None,
        max_attempts: int | None,
        lowest_first: bool,
        own: bool,
    ) -> Op[list[Lease[P]]]:
        """`own`: on a connection of ours. In the caller's transaction a lease is as durable as the rest of it, and leaves
        no trace in the cursor, since it may be rolled back."""
        cursor = self._cursors.setdefault((queue, type), Cursor()) if own else Cursor()

        def make(now: datetime | None) -> Op[list[Lease[P]]]:
            request = ops.LeaseRequest(
                queue=queue,
                n=n,
                type=type,
                lease_for=lease_for,
                consumer=consumer,
                max_attempts=max_attempts,
                lowest_first=lowest_first,
                durable=not own,
                now=now,
            )
            return ops.lease(request, decode, cursor, monotonic)

        return self._creating(queue, make)

    def wait(self, queue: str, type: str | None, sleeper: wait_statements.Sleeper) -> Op[Waited]:
        return self._one(queue, lambda now: wait_statements.wait(queue, type, sleeper, now))

    def ack(self, queue: str, holds: Sequence[Hold]) -> Op[list[Settled]]:
        return self._in(queue, lambda now: ops.ack(queue, holds, now))

    def nack(self, queue: str, failures: Sequence[Failure], retry: Retry | None) -> Op[list[Settled]]:
        return self._in(queue, lambda now: ops.nack(queue, failures, retry, now))

    def locked(self, queue: str, keys: Sequence[str]) -> Op[frozenset[str]]:
        return statements.locked(queue, keys).run()

    def touch(self, queue: str, holds: Sequence[Hold], lease_for: timedelta | None) -> Op[list[Settled]]:
        return self._in(queue, lambda now: ops.touch(queue, holds, lease_for, now))

    def release(
        self, queue: str, holds: Sequence[Hold], due_at: datetime | None, delay: timedelta | None
    ) -> Op[list[Settled]]:
        return self._in(queue, lambda now: ops.release(queue, holds, now, due_at=due_at, delay=delay))

    def bury(self, queue: str, holds: Sequence[Hold], error: str | None, reason: BuryReason) -> Op[list[Settled]]:
        return self._in(queue, lambda now: ops.bury(queue, holds, error, reason, now))

    def read(self, queue: str, key: str) -> Op[StoredMessage[bytes] | None]:
        return self._one(queue, lambda now: statements.read(queue, key, now))

    def contains(self, queue: str, key: str) -> Op[bool]:
        def found() -> Op[bool]:
            return (yield from self.read(queue, key)) is not None

        return found()

    def messages(self, queue: str, state: State | None, limit: int, filter: Filter) -> Op[list[StoredMessage[bytes]]]:
        return self._one(queue, lambda now: statements.messages(queue, state, limit, filter, now))

    def timeline(self, queue: str, key: str, limit: int, before: int | None, *, own: bool) -> Op[list[Event]]:
        """`own`: in a transaction of ours."""

        def told(now: datetime | None) -> Op[list[Event]]:
            if own:
                yield from statements.by_bitmaps().run()
            return (yield from statements.timeline(queue, key, limit, before).run())

        return self._in(queue, told)

    def counts(self, queue: str, limit: int) -> Op[Counts]:
        return self._one(queue, lambda now: statements.counts(queue, limit, now))

    def edit(self, queue: str, key: str, edit: Edit, version: int | None, *, force: bool) -> Op[Edited]:
        return self._in(queue, lambda now: ops.edit(queue, key, edit, version, now, force=force))

    def give_up(self, queue: str, key: str, error: str | None, version: int | None, *, force: bool) -> Op[Edited]:
        return self._in(queue, lambda now: ops.give_up(queue, key, error, version, now, force=force))

    def drop(self, queue: str, key: str, version: int | None, *, unless_leased: bool) -> Op[bool]:
        return self._one(queue, lambda now: statements.drop(queue, key, version, now, unless_leased=unless_leased))

    def drop_all(self, queue: str) -> Op[int]:
        return self._one(queue, lambda now: statements.drop_all(queue, now))

    def create_queue(self, name: str, settings: QueueSettings, *, exist_ok: bool) -> Op[QueueInfo]:
        return ops.create_queue(name, settings, self._clock.pinned(), exist_ok=exist_ok)

    def edit_queue(self, name: str, settings: QueueSettings, only: frozenset[str]) -> Op[QueueInfo]:
        return ops.edit_queue(name, settings, only, self._clock.pinned())

    def rename_queue(self, name: str, new_name: str) -> Op[QueueInfo]:
        return ops.rename_queue(name, new_name, self._clock.pinned())

    def delete_queue(self, name: str, *, force: bool) -> Op[None]:
        return ops.delete_queue(name, self._clock.pinned(), force=force)

    def queue_info(self, name: str) -> Op[QueueInfo]:
        return ops.queue_info(name)

    def queue_infos(self) -> Op[list[QueueInfo]]:
        return ops.single(queue_statements.infos())

    def pause(self, name: str, *, paused: bool, reason: str | None) -> Op[QueueInfo]:
        return ops.pause_queue(name, paused=paused, reason=reason, now=self._clock.pinned())

    def now(self) -> Op[datetime]:
        return ops.single(queue_statements.now(self._clock.pinned()))

    def _known(self, queue: str) -> Op[None]:
        """The queue is there, or comes into being."""

        def reserved(now: datetime | None) -> Op[None]:
            yield from statements.reserve(queue, 0, now).run()

        return self._creating(queue, reserved)

    def add_key(self, key: ApiKey, expires_for: timedelta | None) -> Op[ApiKey]:
        return ops.single(key_statements.add(key, expires_for, self._clock.pinned()))

    def find_keys(self, ids: Sequence[str]) -> Op[list[ApiKey]]:
        return ops.single(key_statements.find(ids, self._clock.pinned()))

    def keys(self) -> Op[list[ApiKey]]:
        return ops.single(key_statements.every(self._clock.pinned()))

    def revoke_key(self, id: str) -> Op[ApiKey | None]:
        return ops.single(key_statements.revoke(id, self._clock.pinned()))

    def audit(
        self, actor: str, action: str, queue: str | None, detail: Mapping[str, Any] | None, request_id: str | None
    ) -> Op[int]:
        return ops.single(key_statements.audit(actor, action, queue, detail, request_id, self._clock.pinned()))

    def audited(self, id: int, status: int, detail: Mapping[str, Any] | None) -> Op[None]:
        return ops.single(key_statements.audited(id, status, detail))

    def audits(self, limit: int) -> Op[list[Audited]]:
        return ops.single(key_statements.audits(limit))

    def follow(self, after: str | None, until: str | None, limit: int, most: int) -> Op[EventPage]:
        return following.follow(after, until, limit, most)

    def _creating(self, queue: str, make: Callable[[datetime | None], Op[R]]) -> Op[R]:
        """For an offer or a poll: the queue is created if it is missing."""
        now = self._clock.pinned()
        return ops.in_queue(queue, now, lambda: make(now), create=self._create)

    def _in(self, queue: str, make: Callable[[datetime | None], Op[R]]) -> Op[R]:
        """For all other verbs: a missing queue is unknown, and stays so."""
        return ops.in_known_queue(lambda: make(self._clock.pinned()))

    def _one(self, queue: str, make: Callable[[datetime | None], Statement[R]]) -> Op[R]:
        return self._in(queue, lambda now: make(now).run())


class Offering:
    """The op of an offer, for each try of it: a second one must know that it is the second."""

    def __init__(self, queue: str, drafts: Sequence[Draft], *, again: bool = False) -> None:
        """`again`: an earlier operation has tried the same, and may have stored it."""
        self._queue = queue
        self._drafts = drafts
        self._tried = again

    def __call__(self, verbs: Verbs) -> Op[list[Outcome]]:
        again, self._tried = self._tried, True
        return verbs.offer_many(self._queue, self._drafts, again=again)
