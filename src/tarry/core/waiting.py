"""How consumers wait: one of them sleeps for the head of a queue, the others stand in line behind it.

Everything is decided here, once, for threads and for tasks: who leads, how long the leader sleeps, who is called. It blocks
nobody: `waiting` yields what is to be done next, and a shell that blocks or awaits does it.
"""

from __future__ import annotations

import math
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple, Protocol, TypeVar

from tarry.core.conditions import Condition

D = TypeVar("D")

FIRST_NAP_S = 0.01
NAP_GROWTH = 4
"""A transaction that was open when the wait began did not see the waiter and will not notify it. Naps therefore begin
short and grow: such a message is late by a few times the duration of its transaction, and a consumer that has waited
long queries rarely. A store also notifies for what is due before the end of the next nap, so a transaction shorter than
a nap cannot span its renewal unnoticed.
"""
_BREATHER_S = 0.005
"""Who has just got something is likely to get more soon: it looks again after this, before anybody is asked to ring. So under
load nobody rings at all, and only an idle consumer is called."""
_HELD_UP_S = 0.01
"""What is due and was not handed out is in somebody's open transaction: look again soon, but not all the time."""
_VAIN_S = 0.005
_MOST_VAIN = 4
"""Called, and others were quicker: the next call is answered later, at most 80 ms. A ring reaches all who wait."""
_SAME_S = 0.001
_LEFT_KEPT = 1_000


class LineKey(NamedTuple):
    queue: str
    type: str | None


class Waited(NamedTuple):
    """What a store says to somebody who is about to sleep."""

    due_in: timedelta | None
    """How long until something may be deliverable: zero if now, None if nothing waits (or the queue is paused)."""
    rings_for: timedelta = timedelta(0)
    """For how long whoever offers something earlier will ring for us; zero if nobody will."""


class Ticket(Protocol):
    """One consumer in line."""

    def wake(self) -> bool:
        """Ends its park, from any thread. False: its owner is gone, with its event loop."""
        ...


@dataclass(frozen=True, slots=True)
class Look:
    """Lease what is there; the answer is the deliveries."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Tell the store that we are about to sleep; the answer is a `Waited`."""

    sleep_s: float


@dataclass(frozen=True, slots=True)
class Park:
    """Wait until the ticket is woken, or for so long."""

    seconds: float


Step = Look | Ask | Park
_LOOK = Look()


class Line:
    """The consumers of one process that wait for one queue (and type). The first leads; only it touches the rest."""

    def __init__(self) -> None:
        self.tickets: OrderedDict[Ticket, None] = OrderedDict()
        self.rung = False
        self.asleep_until = math.inf
        """While it sleeps: when it wakes by itself."""
        self.asked_at = -math.inf
        self.rings_until = -math.inf
        """Until then, somebody else's earlier offer rings."""
        self.head_at = math.inf
        """When the head was said to be due."""
        self.naps = 0
        self.vain = 0
        self.just_delivered = False

    @property
    def leader(self) -> Ticket | None:
        return next(iter(self.tickets), None)

    @property
    def vain_s(self) -> float:
        return _VAIN_S * 2.0**self.vain if self.vain else 0.0

    def delivered(self) -> None:
        self.just_delivered, self.naps, self.vain = True, 0, 0

    def looked_in_vain(self) -> None:
        self.vain = min(self.vain + 1, _MOST_VAIN)


class Lobby:
    """Where the consumers of one store wait, in this process. Thread-safe; a bell rings here."""

    def __init__(
        self,
        *,
        scan_every: timedelta,
        listening_scan_every: timedelta,
        monotonic: Callable[[], float],
        condition: Callable[[], Condition] = threading.Condition,
    ) -> None:
        """`condition`: what a thread that waits here waits on."""
        self.condition = condition
        self._scan_s = scan_every.total_seconds()
        self._listening_scan_s = max(scan_every, listening_scan_every).total_seconds()
        self.monotonic = monotonic
        self._lock = threading.Lock()
        self._lines: dict[LineKey, Line] = {}
        self._left: OrderedDict[LineKey, Line] = OrderedDict()
        """Lines in which nobody waits any more, for as long as others may still ring for them."""
        self._hears = False
        self._pid = os.getpid()

    @property
    def hears(self) -> bool:
        """Whether it is proven that rings arrive. If not, a sleeper looks as often as `scan_every` says."""
        return self._hears

    def set_hears(self, *, hears: bool) -> None:
        self._hears = hears

    def join(self, key: LineKey, ticket: Ticket) -> Line:
        if self._pid != os.getpid():
            # A fork: those who waited are in the other process, and one of them may have held the lock.
            self._lock, self._pid = threading.Lock(), os.getpid()
            self._lines.clear()
            self._left.clear()
        with self._lock:
            line = self._lines.get(key)
            if line is None:
                line = self._lines[key] = self._left.pop(key, None) or Line()
            line.tickets[ticket] = None
            return line

    def leave(self, key: LineKey, ticket: Ticket) -> None:
        """The next in line leads, and looks at once. Whoever leaves had its reasons: got something, gave up, broke."""
        with self._lock:
            line = self._lines.get(key)
            if line is None or ticket not in line.tickets:
                return
            led = line.leader is ticket
            del line.tickets[ticket]
            if led:
                line.asleep_until = math.inf
                self._call(line)
            if not line.tickets:
                del self._lines[key]
                self._left[key] = line
                while len(self._left) > _LEFT_KEPT:
                    self._left.popitem(last=False)

    def ring(self, key: LineKey, due_in: timedelta | None = None) -> None:
        """Something came that may be earlier than what the leader sleeps for; `due_in` says how early."""
        with self._lock:
            line = self._lines.get(key)
            if line is None or (
                due_in is not None and self.monotonic() + due_in.total_seconds() >= line.asleep_until < math.inf
            ):
                return
            line.rung = True
            self._call(line)

    def ring_all(self) -> None:
        """We may have missed something, or what we were told to rely on has changed."""
        with self._lock:
            for line in self._lines.values():
                line.rung = True
                self._call(line)

    def sleep_s(self, line: Line) -> float:
        most = self._listening_scan_s if self._hears else self._scan_s
        return min(FIRST_NAP_S * NAP_GROWTH ** min(line.naps, 30), most)

    def at_most_one_scan_s(self, seconds: float) -> float:
        return min(seconds, self._scan_s)

    def unwanted(self, for_s: float) -> list[LineKey]:
        """Lines for which others may ring for a while yet, though nobody has gone to sleep in them for `for_s`. Once each."""
        now = self.monotonic()
        found: list[LineKey] = []
        with self._lock:
            for key, line in (*self._lines.items(), *self._left.items()):
                awake = math.isinf(line.asleep_until)
                if awake and line.rings_until > now + for_s and line.asked_at < now - for_s:
                    line.rings_until = -math.inf
                    found.append(key)
        return found

    def lines_of(self, queue: str) -> list[LineKey]:
        """Where somebody waits for this queue."""
        if not self._lines:  # as it mostly is: no lock for that
            return []
        with self._lock:
            return [key for key in self._lines if key.queue == queue]

    def asleep(self, queue: str) -> int:
        """How many lines of a queue have a leader that sleeps and would be called."""
        now = self.monotonic()
        with self._lock:
            lines = [line for key, line in self._lines.items() if key.queue == queue]
        return sum(line.asleep_until < math.inf and line.rings_until > now for line in lines)

    def waiting(self, queue: str) -> int:
        """How many consumers wait for a queue."""
        with self._lock:
            return sum(len(line.tickets) for key, line in self._lines.items() if key.queue == queue)

    def _call(self, line: Line) -> None:
        while (leader := line.leader) is not None and not leader.wake():
            del line.tickets[leader]


def waiting(
    lobby: Lobby, key: LineKey, ticket: Ticket, timeout: timedelta | None
) -> Generator[Step, Any, Sequence[Any]]:
    """Look; then stand in line; then, as the leader, sleep until something may be there, and look again.

    Returns what the last look gave: nothing when the time was over. Nobody leases for somebody else, so nothing is held
    for a consumer that has left.
    """
    monotonic = lobby.monotonic
    deadline = math.inf if timeout is None else monotonic() + timeout.total_seconds()
    found = yield _LOOK
    if found or monotonic() >= deadline:
        return found
    line = lobby.join(key, ticket)
    try:
        if line.leader is not ticket:
            while line.leader is not ticket:
                if (left := deadline - monotonic()) <= 0:
                    return []
                yield Park(left)
            if found := (yield _LOOK):
                line.delivered()
                return found
        held_up = False
        while (left := deadline - monotonic()) > 0:
            if line.just_delivered:
                line.just_delivered = False
                yield Park(min(_BREATHER_S, left))
            elif not (yield from _sleep(lobby, line, deadline, held_up=held_up)):
                continue  # nobody said that there is anything: asking again says that, too
            if found := (yield _LOOK):
                line.delivered()
                return found
            held_up = line.head_at <= line.asked_at
        return []
    finally:
        lobby.leave(key, ticket)


def _sleep(lobby: Lobby, line: Line, deadline: float, *, held_up: bool) -> Generator[Step, Any, bool]:
    """Ask, and sleep for what the answer says. Whether there may be something now, or the time is over.

    `held_up`: the last answer was that something is due, and it was not to be had.
    """
    monotonic = lobby.monotonic
    asked_at = monotonic()
    # A gap in which nobody would have rung: as if we began to wait now.
    line.naps = line.naps + 1 if line.rings_until > asked_at else 0
    sleep_s = lobby.sleep_s(line)
    line.rung = False
    line.asked_at = asked_at
    waited: Waited = yield Ask(sleep_s)
    line.rings_until = asked_at + waited.rings_for.total_seconds()
    now = monotonic()
    due_s = math.inf if waited.due_in is None else waited.due_in.total_seconds()
    if asked_at + due_s < line.head_at - _SAME_S:
        line.vain = 0  # who rang had a reason: there is an earlier head
    line.head_at = asked_at + due_s
    if due_s <= 0 and not held_up:
        return True
    nap_s = min(due_s, sleep_s) if due_s > 0 else lobby.at_most_one_scan_s(max(_HELD_UP_S, line.vain_s))
    deaf_until = now + line.vain_s
    until = line.asleep_until = min(now + nap_s, deadline)
    try:
        # A loop around what we wait for: being woken is only a reason to look at the clock and the bell.
        while (now := monotonic()) < until and not (line.rung and now >= deaf_until):
            yield Park((min(deaf_until, until) if line.rung else until) - now)
    finally:
        line.asleep_until = math.inf
    called = line.rung or due_s <= sleep_s
    if called:
        line.looked_in_vain()  # unless the look that follows gives something
    else:
        line.vain = 0
    return called or now >= deadline
