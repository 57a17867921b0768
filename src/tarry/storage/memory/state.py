"""The shared state of an in-memory store's roles, and its operations: functions that run under its lock and clock."""

from __future__ import annotations

import secrets
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import wraps
from hashlib import sha256
from itertools import count
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from tarry.core import limits
from tarry.core.clock import AuthorityClock, Clock
from tarry.core.dead_letters.redrive import EVERY_LETTER, DeadFilter
from tarry.core.errors import UnknownQueue
from tarry.core.journal.events import Event, EventKind, JournalLevel
from tarry.core.maintenance.leadership import Leadership
from tarry.core.messages.model import Counted, Counts, LeaseId
from tarry.core.messages.states import State
from tarry.core.operation import Operation
from tarry.core.settings import QueueInfo, QueueSettings, StoreSettings
from tarry.core.wakeup.wait_queue import WaitQueue
from tarry.delayqueue.strategies import Strategy, WaitNotifyScan
from tarry.storage.memory.rows import DeadRow, DeliveryOrder, Row
from tarry.wire.base import same_fields

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Role = TypeVar("Role", bound="MemoryRole")

ALWAYS: Final = timedelta(days=3650)
_NOTHING = timedelta(0)
_WITH_CONTENT = (EventKind.OFFERED, EventKind.UPDATED, EventKind.EDITED)
_HASH_BYTES = 8


class MemoryState:
    """The state that the roles share. Everything except `now` and `locked` may be used only inside `locked`."""

    def __init__(
        self,
        clock: Clock,
        settings: StoreSettings,
        random: Callable[[], float],
        events_kept: int | None,
        strategy: Strategy | None,
    ) -> None:
        self._clock = clock
        self.settings = settings
        self.random = random
        self.strategy = strategy
        self.lock = threading.Lock()
        self.locked_at = self.now()
        """When the current operation took the lock: all its changes have this time."""
        self.journal = secrets.token_hex(8)
        self.last_event = 0
        self.events: deque[tuple[Event, MemoryQueue]] = deque(maxlen=events_kept)
        """Of all queues in order, each with its queue, because the name may change. Bounded: there is no archive."""
        self.queues: dict[str, MemoryQueue] = {}
        self.leaders: dict[str, Leadership] = {}
        """The last leader of each name; its lease may have expired."""
        self.wait_queue = _wait_queue(settings, strategy)
        # Every change notifies the waiters, except a manually moved clock.
        self.wait_queue.is_listening = isinstance(clock, AuthorityClock)
        self.versions = count(1)
        """One counter for all queues: a version identifies one state of one message across queues."""
        self.changed: set[MemoryQueue] = set()
        """Queues whose messages may be due earlier than before."""

    def now(self) -> datetime:
        return self._clock.pinned() or datetime.now(UTC)

    @contextmanager
    def locked(self) -> Generator[datetime]:
        with self.lock:
            # Read under the lock, so that changes and their times have the same order.
            now = self.locked_at = self.now()
            try:
                yield now
            finally:
                while self.changed:
                    self._notify(self.changed.pop(), now)

    def _notify(self, queue: MemoryQueue, now: datetime) -> None:
        for key in self.wait_queue.groups_of(queue.name):
            look_in = self.look_in(queue, key.type, now)
            if look_in is not None:
                self.wait_queue.notify(key, look_in)

    def look_in(self, queue: MemoryQueue, type: str | None, now: datetime) -> timedelta | None:
        """The time until the next check: zero if a message is due, else by the strategy's timers. None: no message."""
        next_at = None if queue.paused_at is not None else queue.order.next_at(now, type)
        if next_at is None:
            return None
        due_in = max(next_at - now, _NOTHING)
        if not due_in or self.strategy is None:
            return due_in
        now_s = time.monotonic()
        timers = self.strategy.timers()
        timers.start(None, now_s + due_in.total_seconds(), now_s)
        return max(due_in, timedelta(seconds=timers.wake_at() - now_s))

    def queue(self, name: str) -> MemoryQueue:
        """The queue, for verbs that never create one."""
        queue = self.queues.get(name)
        if queue is None:
            raise UnknownQueue(name)
        return queue

    def used_queue(self, name: str) -> MemoryQueue:
        """The queue, for offers and polls, which create it if it is missing."""
        if name not in self.queues and self.settings.create_queues:
            return self.create_queue(name, QueueSettings())
        return self.queue(name)

    def leased_queue(self, name: str, lease_id: LeaseId) -> MemoryQueue | None:
        """The queue with this name, or the one that had it before and whose message has this lease."""
        named = self.queues.get(name)
        if named is not None and named.has_lease(lease_id):
            return named  # without a search of the other queues
        renamed = (each for each in self.queues.values() if name in each.former_names and each.has_lease(lease_id))
        return next(renamed, named)

    def create_queue(self, name: str, settings: QueueSettings) -> MemoryQueue:
        queue = self.queues[name] = MemoryQueue(limits.check_queue_name(name), settings, self)
        queue.note_queue(EventKind.QUEUE_CREATED)
        return queue

    def record(self, kind: EventKind, queue: MemoryQueue, **fields: Any) -> None:
        self.last_event += 1
        event = Event(id=self.last_event, kind=kind, at=self.locked_at, queue=queue.name, **fields)
        self.events.append((event, queue))

    def leader(self, name: str) -> Leadership | None:
        last = self.leaders.get(name)
        return last if last is not None and last.lease_until > self.locked_at else None

    def leads(self, leadership: Leadership | None) -> bool:
        """Whether the leadership is valid, or None, for work without a leader."""
        leader = None if leadership is None else self.leader(leadership.name)
        return leadership is None or (leader is not None and leader.fence == leadership.fence)


def _wait_queue(settings: StoreSettings, strategy: Strategy | None) -> WaitQueue:
    """The wait queue of blocking polls, configured by the settings or by a strategy."""
    if strategy is None:
        return WaitQueue(
            scan_every=settings.scan_every, listening_scan_every=settings.listening_scan_every, monotonic=time.monotonic
        )
    scan_every = strategy.scan_every if isinstance(strategy, WaitNotifyScan) else ALWAYS
    return WaitQueue(
        scan_every=min(settings.scan_every, scan_every),  # a manually moved clock sends no notifications
        listening_scan_every=scan_every,
        monotonic=time.monotonic,
        condition=lambda: strategy.waiting(threading.Condition(), time.monotonic),
    )


class MemoryQueue:
    """One queue: live messages, dead letters and delivery order."""

    def __init__(self, name: str, settings: QueueSettings, state: MemoryState) -> None:
        self.name = name
        self.former_names: set[str] = set()
        self.settings = settings
        self.created_at = self.updated_at = state.locked_at
        self.paused_at: datetime | None = None
        self.paused_reason: str | None = None
        self.rows: dict[str, Row] = {}
        self.dead: dict[int, DeadRow] = {}
        self.order = DeliveryOrder()
        self._state = state

    @property
    def info(self) -> QueueInfo:
        return QueueInfo(**same_fields(self, QueueInfo))

    def counts(self, limit: int, now: datetime) -> Counts:
        states = Counter(row.state(now) for row in self.rows.values())
        ready = (row.due_at for row in self.rows.values() if row.state(now) is State.READY)

        return Counts(
            delayed=Counted.up_to(limit, states[State.DELAYED]),
            ready=Counted.up_to(limit, states[State.READY]),
            leased=Counted.up_to(limit, states[State.LEASED]),
            dead=Counted.up_to(limit, len(self.dead)),
            lag_for=now - min(ready, default=now),
        )

    def next_version(self) -> int:
        return next(self._state.versions)

    def has_lease(self, lease_id: LeaseId) -> bool:
        row = self.rows.get(lease_id.key)
        return row is not None and row.token == lease_id.token

    def add(self, row: Row) -> None:
        """Add a row, which replaces a row with the same key."""
        old = self.rows.get(row.key)
        if old is not None:
            self.order.remove(old)
        self.rows[row.key] = row
        self.wait(row)

    def wait(self, row: Row) -> None:
        """Make a row deliverable from its due time on."""
        self.order.wait(row)
        self._state.changed.add(self)

    def remove(self, row: Row) -> None:
        del self.rows[row.key]
        self.order.remove(row)

    def bury(self, row: Row, reason: str, error: str | None) -> None:
        error = None if error is None else limits.clip_error(error)
        self.note(EventKind.BURIED, row, leased=True, error=error, detail={"reason": reason})
        self.remove(row)
        last_error = error if error is not None else row.last_error
        self.dead[row.version] = DeadRow(row, self._state.locked_at, reason, last_error, row.consumer)
        row.end_lease()

    def purge(self) -> int:
        rows = list(self.rows.values())
        for row in rows:
            self.note(EventKind.DROPPED, row)
        self.rows.clear()
        self.order = DeliveryOrder()
        self.note_queue(EventKind.QUEUE_PURGED, {"count": len(rows)})
        return len(rows)

    def dead_fitting(self, where: DeadFilter = EVERY_LETTER) -> list[DeadRow]:
        """Matching dead letters, oldest first."""
        return sorted((dead for dead in self.dead.values() if dead.fits(where)), key=lambda dead: dead.age_order)

    def discard(self, where: DeadFilter = EVERY_LETTER) -> int:
        discarded = self.dead_fitting(where)
        for dead in discarded:
            self.note(EventKind.DISCARDED, dead.row)
            del self.dead[dead.row.version]
        return len(discarded)

    def note_queue(self, kind: EventKind, detail: Mapping[str, Any] | None = None) -> None:
        if kind is not EventKind.QUEUE_PURGED:
            self.updated_at = self._state.locked_at
        self._state.record(kind, self, detail=detail)

    def note(
        self,
        kind: EventKind,
        row: Row,
        *,
        leased: bool = False,
        error: str | None = None,
        detail: Mapping[str, Any] | None = None,
    ) -> None:
        """Append the current state of the row; `leased` adds the lease times, so call it before the lease is ended."""
        level = self.settings.journal
        if level is JournalLevel.OFF:
            return
        has_content = kind in _WITH_CONTENT
        has_payload = has_content and level is JournalLevel.PAYLOADS
        if has_content:  # the type, and with a payload the fields to decode and route it
            routing: dict[str, Any] = {"type": row.type}
            if has_payload:
                routing |= {"content_type": row.content_type, "headers": row.headers}
            given = {name: value for name, value in routing.items() if value is not None}
            detail = {**(detail or {}), **given} or None
        self._state.record(
            kind,
            self,
            **same_fields(row, Event, "payload", "leased_at", "lease_until"),
            leased_at=row.leased_at if leased else None,
            lease_until=row.lease_until if leased else None,
            size=len(row.payload) if has_content or kind is EventKind.REDRIVEN else None,
            payload_hash=sha256(row.payload).digest()[:_HASH_BYTES] if has_content else None,
            payload=row.payload if has_payload else None,
            error=error,
            detail=detail,
        )


@dataclass(frozen=True, slots=True, eq=False)
class MemoryOperation(Operation[R_co]):
    call: Callable[[], R_co]


class MemoryRole:
    def __init__(self, state: MemoryState) -> None:
        self._state = state

    @property
    def _now(self) -> datetime:
        """The time of the current operation."""
        return self._state.locked_at

    def _result(self, value: R) -> MemoryOperation[R]:
        return MemoryOperation(lambda: value)


def locked(method: Callable[Concatenate[Role, P], R]) -> Callable[Concatenate[Role, P], MemoryOperation[R]]:
    """Turn a method into an operation that runs under the store's lock."""

    @wraps(method)
    def operation(self: Role, /, *args: P.args, **kwargs: P.kwargs) -> MemoryOperation[R]:
        def call() -> R:
            with self._state.locked():  # pyright: ignore[reportPrivateUsage]
                return method(self, *args, **kwargs)

        return MemoryOperation(call)

    return operation
