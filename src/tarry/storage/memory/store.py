"""The in-memory store: the same guarantees as PostgreSQL's, until the process ends.

This module has the lock and the clock around the verbs; `offers`, `leases`, `settles` and `removals` implement them,
`chores` has the verbs of dead letters, leadership and sweepers, and `scheduling` those of the cron service.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from tarry.core.audit import Audited
from tarry.core.clock import AuthorityClock, Clock
from tarry.core.editing import Edit
from tarry.core.errors import InvalidInput
from tarry.core.events import Event
from tarry.core.following import EventPage
from tarry.core.keys import ApiKey
from tarry.core.messages import (
    EVERYTHING,
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
from tarry.core.ports import NO_CONNECTIONS, Connections
from tarry.core.retry import Retry
from tarry.core.settings import QueueInfo, QueueSettings, StoreSettings
from tarry.core.states import State
from tarry.core.waiting import Waited
from tarry.storage.memory import edits, leases, offers, removals, settles
from tarry.storage.memory.answers import Answers
from tarry.storage.memory.chores import Chores
from tarry.storage.memory.journal import Journal
from tarry.storage.memory.keyring import Keyring
from tarry.storage.memory.leaders import Leaders
from tarry.storage.memory.leases import Broken, Claim, Decoded, Verdict
from tarry.storage.memory.queues import MemoryQueue
from tarry.storage.memory.redrives import Redrives
from tarry.storage.memory.registry import Registry
from tarry.storage.memory.schedules import Schedules
from tarry.storage.memory.scheduling import Scheduling
from tarry.storage.memory.sleeping import ALWAYS, lobby_for, look_in
from tarry.storage.memory.strategies import Strategy

P = TypeVar("P")

_AUTHORITY: Clock = AuthorityClock()
_DEFAULTS = StoreSettings()
_EVENTS_KEPT = 100_000


class MemoryStore(Chores, Scheduling):
    """`core.ports.Store` in memory, for tests and for programs that can afford to lose waiting messages.

    `events_kept` bounds the journal (None: unbounded), since there is no archive. `strategy` decides how blocking polls
    wait, instead of `scan_every` and `listening_scan_every`; async tasks never spin, whatever the strategy.
    """

    def __init__(
        self,
        *,
        clock: Clock = _AUTHORITY,
        settings: StoreSettings = _DEFAULTS,
        random: Callable[[], float] = random.random,
        events_kept: int | None = _EVENTS_KEPT,
        strategy: Strategy | None = None,
    ) -> None:
        self.settings = settings
        self._strategy = strategy
        self._clock = clock
        self._random = random
        self._journal = Journal(kept=events_kept)
        self._registry = Registry(self._journal, create_on_use=settings.create_queues)
        self._schedules = Schedules(self._registry.used)
        self._leaders = Leaders()
        self._redrives = Redrives()
        self._keyring = Keyring()
        self.answers = Answers(self._now)
        self._lock = threading.Lock()
        self.lobby = lobby_for(settings, strategy)
        # Every change notifies the waiters, except a manually moved clock.
        self.lobby.set_hears(hears=isinstance(clock, AuthorityClock))

    # Offering

    def offer(self, queue: str, draft: Draft, *, conn: Any = None) -> Outcome:
        with self._changing(queue, conn, create=True) as (state, now):
            return offers.offer(state, draft, now)

    def offer_many(self, queue: str, drafts: Sequence[Draft], *, conn: Any = None) -> list[Outcome]:
        with self._changing(queue, conn, create=True) as (state, now):
            return offers.offer_many(state, drafts, now)

    def offer_once(
        self, queue: str, draft: Draft, request: Once, show: Callable[[Outcome], Answered]
    ) -> Answered | None:
        return self.once(request, lambda conn: show(self.offer(queue, draft, conn=conn)))

    # Leasing

    def lease(
        self,
        queue: str,
        n: int,
        decode: Decode[P],
        *,
        type: str | None = None,
        lease_for: timedelta | None = None,
        consumer: str | None = None,
        max_attempts: int | None = None,
        lowest_first: bool = False,
        conn: Any = None,
    ) -> list[Lease[P]]:
        _refuse(conn)
        if n <= 0:
            return []
        state = self._state(queue)
        claims: list[Claim] = []
        verdicts: list[Verdict[P]] = []
        try:
            while (wanted := n - sum(isinstance(verdict, Decoded) for verdict in verdicts)) > 0:
                with self._lock:
                    fresh = leases.claim(
                        state, wanted, self._now(), type=type, max_attempts=max_attempts, lowest_first=lowest_first
                    )
                    claims += fresh
                if not fresh:
                    break
                verdicts += [leases.judge(claim, decode) for claim in fresh]
                if any(isinstance(verdict, Broken) for verdict in verdicts):
                    break  # a bug of a decoder costs one call at most n attempts
            with self._lock:
                now = self._now()
                leased = leases.settle(
                    state, verdicts, now, lease_for=lease_for, consumer=consumer, random=self._random
                )
                if any(isinstance(verdict, Broken) for verdict in verdicts):
                    self._ring(state, now)
                return leased
        except BaseException:
            with self._lock:
                leases.give_back(state, claims)
                self._ring(state, self._now())
            raise

    def wait(self, queue: str, *, sleep_for: timedelta, type: str | None = None) -> Waited:
        """Nothing to register: changes in this process always notify the waiters."""
        with self._using(queue, None) as (state, now):
            next_at = None if state.paused_at is not None else state.lines.next_at(now, type)
            return Waited(None if next_at is None else look_in(next_at - now, self._strategy), ALWAYS)

    def ack(self, queue: str, holds: Sequence[Hold], *, conn: Any = None) -> list[Settled]:
        return self._settle(queue, holds, lambda state, hold, now: settles.ack(state, [hold], now), conn)

    def nack(
        self, queue: str, failures: Sequence[Failure], *, retry: Retry | None = None, conn: Any = None
    ) -> list[Settled]:
        by_hold = {failure.hold: failure for failure in reversed(failures)}
        return self._settle(
            queue,
            [failure.hold for failure in failures],
            lambda state, hold, now: settles.nack(state, [by_hold[hold]], now, self._random, retry),
            conn,
            ring=True,
        )

    def touch(
        self, queue: str, holds: Sequence[Hold], *, lease_for: timedelta | None = None, conn: Any = None
    ) -> list[Settled]:
        return self._settle(queue, holds, lambda state, hold, now: settles.touch(state, [hold], now, lease_for), conn)

    def release(
        self,
        queue: str,
        holds: Sequence[Hold],
        *,
        due_at: datetime | None = None,
        delay: timedelta | None = None,
        conn: Any = None,
    ) -> list[Settled]:
        return self._settle(
            queue,
            holds,
            lambda state, hold, now: settles.release(state, [hold], now, due_at if delay is None else now + delay),
            conn,
            ring=True,
        )

    def bury(
        self,
        queue: str,
        holds: Sequence[Hold],
        *,
        error: str | None = None,
        reason: BuryReason = "buried",
        conn: Any = None,
    ) -> list[Settled]:
        return self._settle(
            queue, holds, lambda state, hold, now: settles.bury(state, [hold], now, error, reason), conn
        )

    # Browsing

    def read(self, queue: str, key: str, *, conn: Any = None) -> StoredMessage[bytes] | None:
        with self._using(queue, conn) as (state, now):
            row = state.rows.get(key)
            return None if row is None else row.stored(state.name, state.settings, now)

    def contains(self, queue: str, key: str, *, conn: Any = None) -> bool:
        with self._using(queue, conn) as (state, _):
            return key in state.rows

    def messages(
        self,
        queue: str,
        *,
        state: State | None = None,
        limit: int = 100,
        filter: Filter = EVERYTHING,
        conn: Any = None,
    ) -> list[StoredMessage[bytes]]:
        with self._using(queue, conn) as (of_queue, now):
            return of_queue.messages(state, limit, filter, now)

    def timeline(
        self, queue: str, key: str, *, limit: int = 1000, before: int | None = None, conn: Any = None
    ) -> list[Event]:
        with self._using(queue, conn) as (state, _):
            return state.timeline(key, limit, before)

    def counts(self, queue: str, *, limit: int = 10_000, conn: Any = None) -> Counts:
        with self._using(queue, conn) as (state, now):
            return state.counts(limit, now)

    def events(self) -> list[Event]:
        """The journal of all queues, oldest first."""
        with self._lock:
            return self._journal.events()

    def follow(
        self, after: str | None, *, until: str | None = None, limit: int = 1_000, most: int = 20_000
    ) -> EventPage:
        with self._lock:
            return self._journal.follow(after, until, limit, most)

    # Editing and dropping

    def edit(
        self, queue: str, key: str, edit: Edit, *, version: int | None = None, force: bool = False, conn: Any = None
    ) -> Edited:
        with self._changing(queue, conn) as (state, now):
            return edits.edit(state, key, edit, version, now, force=force)

    def give_up(
        self,
        queue: str,
        key: str,
        *,
        error: str | None = None,
        version: int | None = None,
        force: bool = False,
        conn: Any = None,
    ) -> Edited:
        with self._changing(queue, conn) as (state, now):
            return edits.give_up(state, key, error, version, now, force=force)

    def drop(
        self, queue: str, key: str, *, version: int | None = None, unless_leased: bool = False, conn: Any = None
    ) -> bool:
        with self._using(queue, conn) as (state, now):
            return removals.drop(state, key, version, now, unless_leased=unless_leased)

    def drop_all(self, queue: str, *, conn: Any = None) -> int:
        with self._using(queue, conn) as (state, now):
            return state.drop_all(now)

    # Queues

    def create_queue(self, name: str, settings: QueueSettings, *, exist_ok: bool, conn: Any = None) -> QueueInfo:
        with self._locked(conn) as now:
            return self._registry.create(name, settings, now, exist_ok=exist_ok)

    def edit_queue(self, name: str, settings: QueueSettings, *, only: frozenset[str], conn: Any = None) -> QueueInfo:
        with self._locked(conn) as now:
            return self._registry.edit(name, settings, only, now)

    def rename_queue(self, name: str, new_name: str, *, conn: Any = None) -> QueueInfo:
        with self._locked(conn) as now:
            info = self._registry.rename(name, new_name, now)
            self._schedules.renamed(name, new_name)
            return info

    def delete_queue(self, name: str, *, force: bool, conn: Any = None) -> None:
        with self._locked(conn) as now:
            self._registry.delete(name, now, force=force)

    def queue_info(self, name: str, *, conn: Any = None) -> QueueInfo:
        with self._locked(conn):
            return self._registry.known(name).info

    def queue_infos(self, *, conn: Any = None) -> list[QueueInfo]:
        with self._locked(conn):
            return self._registry.infos()

    def pause(self, name: str, *, reason: str | None = None, conn: Any = None) -> QueueInfo:
        with self._locked(conn) as now:
            return self._registry.pause(name, reason, now)

    def resume(self, name: str, *, conn: Any = None) -> QueueInfo:
        with self._locked(conn) as now:
            resumed = self._registry.resume(name, now)
            self._ring(self._registry.known(name), now)
            return resumed

    def now(self, *, conn: Any = None) -> datetime:
        _refuse(conn)
        return self._now()

    # Keys

    def add_key(self, key: ApiKey, *, expires_for: timedelta | None, conn: Any = None) -> ApiKey:
        with self._locked(conn) as now:
            return self._keyring.add(key, expires_for, now)

    def find_keys(self, ids: Sequence[str], *, conn: Any = None) -> list[ApiKey]:
        with self._locked(conn) as now:
            return self._keyring.find(ids, now)

    def keys(self, *, conn: Any = None) -> list[ApiKey]:
        with self._locked(conn) as now:
            return self._keyring.every(now)

    def revoke_key(self, id: str, *, conn: Any = None) -> ApiKey | None:
        with self._locked(conn) as now:
            return self._keyring.revoke(id, now)

    def audit(
        self,
        actor: str,
        action: str,
        *,
        queue: str | None = None,
        detail: Mapping[str, Any] | None = None,
        request_id: str | None = None,
        conn: Any = None,
    ) -> int:
        with self._locked(conn) as now:
            return self._keyring.audit(actor, action, queue, detail, request_id, now)

    def audited(self, id: int, status: int, *, detail: Mapping[str, Any] | None = None, conn: Any = None) -> None:
        with self._locked(conn):
            self._keyring.audited(id, status, detail)

    def audits(self, *, limit: int = 100, conn: Any = None) -> list[Audited]:
        with self._locked(conn):
            return self._keyring.audits(limit)

    def connections(self) -> Connections:
        return NO_CONNECTIONS

    def close(self) -> None:
        """No-op: the messages are freed with the object."""

    @contextmanager
    def _locked(self, conn: Any) -> Generator[datetime, None, None]:
        _refuse(conn)
        with self._lock:
            # Read under the lock, so that changes and their times have the same order.
            yield self._now()

    @contextmanager
    def _using(self, queue: str, conn: Any) -> Generator[tuple[MemoryQueue, datetime], None, None]:
        with self._locked(conn) as now:
            yield self._registry.known(queue), now

    @contextmanager
    def _changing(
        self, queue: str, conn: Any, *, create: bool = False
    ) -> Generator[tuple[MemoryQueue, datetime], None, None]:
        """A change after which a message may be due earlier than before."""
        with self._locked(conn) as now:
            state = self._registry.used(queue, now) if create else self._registry.known(queue)
            yield state, now
            self._ring(state, now)

    def _settle(
        self,
        queue: str,
        holds: Sequence[Hold],
        settle: Callable[[MemoryQueue, Hold, datetime], list[Settled]],
        conn: Any,
        *,
        ring: bool = False,
    ) -> list[Settled]:
        """One by one, each where its message is: a queue may have been renamed since the lease."""
        settled: list[Settled] = []
        with self._locked(conn) as now:
            for hold in holds:
                state = self._registry.holding(queue, hold)
                settled += [Settled.GONE] if state is None else settle(state, hold, now)
                if ring and state is not None:
                    self._ring(state, now)
        return settled

    def _ring(self, state: MemoryQueue, now: datetime) -> None:
        for key in self.lobby.lines_of(state.name):
            next_at = None if state.paused_at is not None else state.lines.next_at(now, key.type)
            if next_at is not None:
                self.lobby.ring(key, look_in(next_at - now, self._strategy))

    def _state(self, queue: str) -> MemoryQueue:
        with self._lock:
            return self._registry.used(queue, self._now())

    def _now(self) -> datetime:
        return self._clock.pinned() or datetime.now(UTC)


def _refuse(conn: Any) -> None:
    if conn is not None:
        raise InvalidInput(
            "the memory store has no connections: its changes cannot be part of a transaction",
            hint="leave conn away, or use the PostgreSQL store",
        )
