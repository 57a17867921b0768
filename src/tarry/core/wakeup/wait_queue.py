"""The wait queue of consumers: the leader sleeps until the head of a queue is due, the others wait behind it.

All decisions for threads and tasks are made here: the leader, the length of its sleep, the consumer to wake. Nothing here
blocks: `waiting` yields the next step, and the caller executes it by blocking or awaiting."""

import math
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from random import random
from types import TracebackType
from typing import Any, NamedTuple, Protocol, TypeVar

D = TypeVar("D")

FIRST_SLEEP_S = 0.01
SLEEP_GROWTH = 4
"""A transaction that was open when the wait began did not see the waiter and will not notify it. Sleeps therefore begin
short and grow: such a message is late by a few times the duration of its transaction, and a consumer that has waited
long queries rarely. A store also notifies for messages due before the end of the next sleep, so a transaction shorter than
a sleep cannot span its renewal unnoticed."""
_AFTER_DELIVERY_S = 0.005
"""After a delivery more messages are likely: poll again after this, before notifications are requested. Under load no
notifications are sent at all; only idle consumers are notified."""
_LOCKED_S = 0.01
"""A due message that could not be leased is locked by an open transaction: poll again soon, but not in a tight loop."""
_EMPTY_POLL_S = 0.005
_MOST_EMPTY_POLLS = 4
"""A notification wakes the leaders of several processes. After an empty poll, a leader reacts to the next one up to 80 ms
later."""
_SAME_S = 0.001
_ABANDONED_KEPT = 1_000


class Condition(Protocol):
    """The part of `threading.Condition` that waiting needs; also implemented by strategies and tests."""

    def __enter__(self) -> bool: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
    def acquire(self) -> Any: ...
    def release(self) -> None: ...
    def wait(self, timeout: float | None = None) -> bool: ...
    def notify(self, n: int = 1) -> None: ...
    def notify_all(self) -> None: ...


class WaitKey(NamedTuple):
    queue: str
    type: str | None


class WaitHint(NamedTuple):
    """A store's information for a consumer that is about to sleep."""

    due_in: timedelta | None
    """Time until a message may be deliverable: zero if now, None if the queue is empty or paused."""
    notified_for: timedelta = timedelta(0)
    """How long producers of an earlier message will notify this process; zero if they will not."""


class Waiter(Protocol):
    def wake(self) -> bool:
        """End its sleep, from any thread. False if its event loop is closed."""
        ...


@dataclass(frozen=True, slots=True)
class Poll:
    """Lease deliverable messages; the result is the deliveries."""


@dataclass(frozen=True, slots=True)
class Announce:
    """Announce to the store that this consumer is about to sleep; the result is a `WaitHint`."""

    sleep_s: float


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait until the waiter is woken, at most this long."""

    seconds: float


Step = Poll | Announce | Sleep
_POLL = Poll()


class WaitGroup:
    """The consumers of one process waiting for one queue (and type). The first is the leader; only it changes the fields."""

    def __init__(self) -> None:
        self.waiters: OrderedDict[Waiter, None] = OrderedDict()
        self.notified_at = math.inf
        """When the leader reacts to a notification: immediately, or later if other processes should react first."""
        self.asleep_until = math.inf
        """When the sleeping leader wakes by itself; infinity if it is awake."""
        self.announced_at = -math.inf
        self.notified_until = -math.inf
        """Until then, producers of an earlier message notify this process."""
        self.head_at = math.inf
        """When the head is due, by the last hint."""
        self.sleeps = 0
        self.empty_polls = 0
        self.just_delivered = False

    @property
    def leader(self) -> Waiter | None:
        return next(iter(self.waiters), None)

    @property
    def vain_s(self) -> float:
        return _EMPTY_POLL_S * 2.0**self.empty_polls if self.empty_polls else 0.0

    def delivered(self) -> None:
        self.just_delivered, self.sleeps, self.empty_polls = True, 0, 0


class WaitQueue:
    """The waiting consumers of one store in this process. Thread-safe; notifications arrive here."""

    def __init__(
        self,
        *,
        scan_every: timedelta,
        listening_scan_every: timedelta,
        monotonic: Callable[[], float],
        condition: Callable[[], Condition] = threading.Condition,
        random: Callable[[], float] = random,
    ) -> None:
        """`condition` creates the condition on which a blocked thread waits."""
        self.condition = condition
        self.scan_s = scan_every.total_seconds()
        self._listening_scan_s = max(scan_every, listening_scan_every).total_seconds()
        self.monotonic = monotonic
        self._random = random
        self._lock = threading.Lock()
        self._groups: dict[WaitKey, WaitGroup] = {}
        self._abandoned: OrderedDict[WaitKey, WaitGroup] = OrderedDict()
        """Groups without consumers, kept because other processes may still send notifications for them."""
        self.is_listening = False
        """Whether notifications are proven to arrive. If not, a sleeping leader polls every `scan_every`."""
        self._pid = os.getpid()

    def join(self, key: WaitKey, waiter: Waiter) -> WaitGroup:
        if self._pid != os.getpid():
            # After a fork: the waiting consumers are in the parent process, and one of them may have held the lock.
            self._lock, self._pid = threading.Lock(), os.getpid()
            self._groups.clear()
            self._abandoned.clear()
        with self._lock:
            group = self._groups.get(key)
            if group is None:
                group = self._groups[key] = self._abandoned.pop(key, None) or WaitGroup()
            group.waiters[waiter] = None
            return group

    def leave(self, key: WaitKey, waiter: Waiter) -> None:
        """Remove a consumer. If it was the leader, the next one leads and polls immediately."""
        with self._lock:
            group = self._groups.get(key)
            if group is None or waiter not in group.waiters:
                return
            was_leader = group.leader is waiter
            del group.waiters[waiter]
            if was_leader:
                group.asleep_until = math.inf
                self._wake_leader(group)
            if not group.waiters:
                del self._groups[key]
                self._abandoned[key] = group
                while len(self._abandoned) > _ABANDONED_KEPT:
                    self._abandoned.popitem(last=False)

    def notify(self, key: WaitKey, due_in: timedelta | None = None, *, within_s: float = 0.0) -> None:
        """Wake the leader for a new message, unless `due_in` is not before the end of its sleep.

        `within_s`: other processes were notified by name. This one polls at a random time within these seconds, in case
        they have stopped. A poll that is already planned stays: further messages cause no further polls.
        """
        with self._lock:
            group, now = self._groups.get(key), self.monotonic()
            if group is None or (due_in is not None and now + due_in.total_seconds() >= group.asleep_until < math.inf):
                return
            if within_s > 0 and group.notified_at < math.inf:
                return
            group.notified_at = now + within_s * self._random() if within_s > 0 else -math.inf
            self._wake_leader(group)

    def notify_all(self) -> None:
        """Wake every leader: notifications may have been missed, or the reliability of notifications has changed."""
        with self._lock:
            for group in self._groups.values():
                group.notified_at = -math.inf
                self._wake_leader(group)

    def sleep_s(self, group: WaitGroup) -> float:
        most = self._listening_scan_s if self.is_listening else self.scan_s
        return min(FIRST_SLEEP_S * SLEEP_GROWTH ** min(group.sleeps, 30), most)

    def expired_notifications(self, for_s: float) -> list[WaitKey]:
        """Groups that still receive notifications although no leader has slept for `for_s`; each is returned once."""
        now = self.monotonic()
        keys: list[WaitKey] = []
        with self._lock:
            for key, group in (*self._groups.items(), *self._abandoned.items()):
                awake = math.isinf(group.asleep_until)
                if awake and group.notified_until > now + for_s and group.announced_at < now - for_s:
                    group.notified_until = -math.inf
                    keys.append(key)
        return keys

    def groups_of(self, queue: str) -> list[WaitKey]:
        if not self._groups:  # the usual case, which needs no lock
            return []
        with self._lock:
            return [key for key in self._groups if key.queue == queue]

    def asleep(self, queue: str) -> int:
        """Number of groups of a queue whose leader sleeps and would be notified."""
        now = self.monotonic()
        with self._lock:
            groups = [group for key, group in self._groups.items() if key.queue == queue]
        return sum(group.asleep_until < math.inf and group.notified_until > now for group in groups)

    def waiting(self, queue: str) -> int:
        """Number of consumers that wait for a queue."""
        with self._lock:
            return sum(len(group.waiters) for key, group in self._groups.items() if key.queue == queue)

    def _wake_leader(self, group: WaitGroup) -> None:
        while (leader := group.leader) is not None and not leader.wake():
            del group.waiters[leader]


def waiting(
    wait_queue: WaitQueue, key: WaitKey, waiter: Waiter, timeout: timedelta | None
) -> Generator[Step, Any, Sequence[Any]]:
    """Poll; then join the group; then, as its leader, sleep until a message may be deliverable, and poll again.

    Returns the result of the last poll: empty after the timeout. Every consumer leases for itself, so no message is leased
    for a consumer that has left."""
    monotonic = wait_queue.monotonic
    deadline = math.inf if timeout is None else monotonic() + timeout.total_seconds()
    deliveries = yield _POLL
    if deliveries or monotonic() >= deadline:
        return deliveries
    group = wait_queue.join(key, waiter)
    try:
        if group.leader is not waiter:
            while group.leader is not waiter:
                if (remaining_s := deadline - monotonic()) <= 0:
                    return []
                yield Sleep(remaining_s)
            if deliveries := (yield _POLL):
                group.delivered()
                return deliveries
        is_locked = False
        while (remaining_s := deadline - monotonic()) > 0:
            if group.just_delivered:
                group.just_delivered = False
                yield Sleep(min(_AFTER_DELIVERY_S, remaining_s))
            elif not (yield from _sleep(wait_queue, group, deadline, is_locked=is_locked)):
                continue  # no sign of a message: the next announcement would detect one, too
            if deliveries := (yield _POLL):
                group.delivered()
                return deliveries
            is_locked = group.head_at <= group.announced_at
        return []
    finally:
        wait_queue.leave(key, waiter)


def _sleep(wait_queue: WaitQueue, group: WaitGroup, deadline: float, *, is_locked: bool) -> Generator[Step, Any, bool]:
    """Announce the sleep, then sleep as long as the hint allows. True if a message may be deliverable, or after the timeout.

    `is_locked`: by the last hint a message was due, but the poll did not return it."""
    monotonic = wait_queue.monotonic
    announced_at = monotonic()
    # Producers did not notify us for a while: treat this as the beginning of the wait.
    group.sleeps = group.sleeps + 1 if group.notified_until > announced_at else 0
    sleep_s = wait_queue.sleep_s(group)
    group.notified_at = math.inf
    group.announced_at = announced_at
    hint: WaitHint = yield Announce(sleep_s)
    group.notified_until = announced_at + hint.notified_for.total_seconds()
    now = monotonic()
    due_s = math.inf if hint.due_in is None else hint.due_in.total_seconds()
    if announced_at + due_s < group.head_at - _SAME_S:
        group.empty_polls = 0  # the notification was justified: there is an earlier head
    group.head_at = announced_at + due_s
    if due_s <= 0 and not is_locked:
        return True
    nap_s = min(due_s, sleep_s) if due_s > 0 else min(max(_LOCKED_S, group.vain_s), wait_queue.scan_s)
    ignores_until = now + group.vain_s
    until = group.asleep_until = min(now + nap_s, deadline)
    try:
        # A loop around a predicate: a wakeup is only a reason to check the clock and `notified_at`.
        while (now := monotonic()) < (end := min(until, max(ignores_until, group.notified_at))):
            yield Sleep(end - now)
    finally:
        group.asleep_until = math.inf
    may_be_due = group.notified_at == -math.inf or due_s <= sleep_s
    if may_be_due:
        # `delivered` resets this if the next poll returns messages.
        group.empty_polls = min(group.empty_polls + 1, _MOST_EMPTY_POLLS)
    else:
        group.empty_polls = 0
    return may_be_due or now >= deadline
