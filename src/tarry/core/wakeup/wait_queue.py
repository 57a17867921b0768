"""The wait queue of consumers: the leader sleeps until the head of a queue is due, the others wait behind it.

Decides for threads and tasks alike which consumer leads, how long a sleep may be, and which one to wake. `api.waiting`
polls and sleeps."""

import math
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from random import random
from types import TracebackType
from typing import Any, NamedTuple, Protocol

FIRST_SLEEP_S = 0.01
SLEEP_GROWTH = 4
"""A transaction that was open when the wait began did not see the waiter and will not notify it. Sleeps therefore begin
short and grow: such a message is late by a few times the duration of its transaction, and a consumer that has waited
long queries rarely. A store also notifies for messages due before the end of the next sleep, so a transaction shorter than
a sleep cannot span its renewal unnoticed."""
_EMPTY_POLL_S = 0.005
_MOST_EMPTY_POLLS = 4
"""A notification wakes the leaders of several processes. After an empty poll, a leader reacts to the next one up to 80 ms
later."""
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
        return _EMPTY_POLL_S * 2.0 ** min(self.empty_polls, _MOST_EMPTY_POLLS) if self.empty_polls else 0.0

    def delivered(self) -> None:
        self.just_delivered, self.sleeps, self.empty_polls = True, 0, 0


@dataclass(eq=False, kw_only=True)
class WaitQueue:
    """The waiting consumers of one store in this process. Thread-safe; notifications arrive here."""

    scan_every: timedelta
    listening_scan_every: timedelta
    monotonic: Callable[[], float]
    condition: Callable[[], Condition] = threading.Condition
    """Creates the condition on which a blocked thread waits."""
    random: Callable[[], float] = random
    is_listening: bool = field(default=False, init=False)
    """Whether notifications are proven to arrive. If not, a sleeping leader polls every `scan_every`."""

    def __post_init__(self) -> None:
        self.scan_s = self.scan_every.total_seconds()
        self._listening_scan_s = max(self.scan_every, self.listening_scan_every).total_seconds()
        self._lock = threading.Lock()
        self._groups: dict[WaitKey, WaitGroup] = {}
        self._abandoned: OrderedDict[WaitKey, WaitGroup] = OrderedDict()
        """Groups without consumers, kept because other processes may still send notifications for them."""
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
            group.notified_at = now + within_s * self.random() if within_s > 0 else -math.inf
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

    def _wake_leader(self, group: WaitGroup) -> None:
        while (leader := group.leader) is not None and not leader.wake():
            del group.waiters[leader]
