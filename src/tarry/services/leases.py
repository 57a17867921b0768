"""The heart-beat: leases of running handlers are prolonged in time, and a handler whose lease is lost is told so.

Time is what has passed here since a lease was asked for, never what a wall clock says. So a lease can only be longer than
we think, and a process that was frozen knows that it has lost its leases before anybody tells it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from tarry.core.errors import TarryError
from tarry.core.outcomes import Settled
from tarry.handles.aio import AsyncQueue
from tarry.handles.delivery import AsyncDelivery, Handed

_log = logging.getLogger("tarry.worker")
_BEAT = 1 / 3
"""After this share of a lease it is prolonged: two more beats may fail before it is lost."""
_AGAIN = 1 / 12
"""After this share, a beat that failed is tried again."""
_HELD_UP = 1 / 6
"""A look that comes later than planned by this share of a lease is worth a word: a few more, and leases are lost."""
IDLE_S = 1.0


class Held:
    """One lease, for as long as its handler needs it."""

    __slots__ = ("beating", "delivery", "expires_s", "handed", "lose", "next_s", "queue", "settling", "span_s")

    def __init__(self, queue: AsyncQueue[Any], delivery: AsyncDelivery[Any], lose: Callable[[str], None]) -> None:
        self.queue = queue
        self.delivery = delivery
        self.handed: Handed[Any] = delivery
        """What the handler has, which may settle the message itself."""
        self.lose = lose
        # The database reads its clock twice for it: without this a lease of 1 s would be asked for again as 0.999999 s,
        # which is refused, and no two leases would share a touch.
        self.span_s = round(delivery.lease_for.total_seconds(), 3)
        self.beating = False
        self.settling = False
        self.began(delivery.asked_s)

    def began(self, asked_s: float) -> None:
        self.expires_s = asked_s + self.span_s
        self.next_s = asked_s + self.span_s * _BEAT

    def busy(self, asked_s: float) -> None:
        """Another transaction had locked the message when the touch was sent: until that ends no other consumer can lease
        it, whatever the lease says. An answer that is read late proves nothing about the time since."""
        self.next_s = asked_s + self.span_s * _AGAIN
        self.expires_s = max(self.expires_s, asked_s + self.span_s * _BEAT)

    def is_over(self, now_s: float) -> bool:
        return now_s >= self.expires_s

    @property
    def is_settled(self) -> bool:
        """By the handler, and for certain: there is nothing to prolong, and nothing to lose."""
        return self.handed.settled is not None and self.handed.unconfirmed is None


class Leases:
    def __init__(self, timer: Callable[[], float]) -> None:
        self._timer = timer
        self._held: set[Held] = set()
        self._beats: set[asyncio.Task[None]] = set()
        self.next_look_s = timer()
        """When `run_once` wanted to be called again."""

    def add(self, held: Held) -> None:
        self._held.add(held)

    def remove(self, held: Held) -> None:
        self._held.discard(held)

    async def run_once(self) -> float:
        """Prolong what is due, give up what is over. Says in how many seconds to look again."""
        now_s = self._timer()
        self._held = {held for held in self._held if not held.is_settled}
        self._remark(now_s - self.next_look_s)
        due: dict[tuple[str, float], list[Held]] = {}
        for held in [held for held in self._held if not held.beating or held.is_over(now_s)]:
            if held.is_over(now_s):
                self._lost(held, "the lease ran out before it could be prolonged")
            elif now_s >= held.next_s:
                held.beating = True
                due.setdefault((held.queue.name, held.span_s), []).append(held)
        for (_, span_s), group in due.items():
            # Not awaited here: while the database is away, leases run out one by one, and that must be noticed.
            beat = asyncio.create_task(self._prolong(group, span_s), name="tarry-beat")
            self._beats.add(beat)
            beat.add_done_callback(self._beats.discard)
        # A beat under way may fail and want to be tried again, and nobody wakes this loop to say so.
        moments = [
            min(now_s + held.span_s * _AGAIN if held.beating else held.next_s, held.expires_s) for held in self._held
        ]
        self.next_look_s = min(moments, default=now_s + IDLE_S)
        return max(0.0, self.next_look_s - now_s)

    async def _prolong(self, group: list[Held], span_s: float) -> None:
        asked_s = self._timer()
        try:
            # In so many words: what the queue says may have been changed since.
            answers = await group[0].queue.touch_many([held.delivery.hold for held in group], timedelta(seconds=span_s))
        except TarryError as error:
            _log.warning("leases of queue %s could not be prolonged yet: %s", group[0].queue.name, error)
            for held in group:
                held.next_s = self._timer() + span_s * _AGAIN
            return
        finally:
            for held in group:
                held.beating = False
        for held, answer in zip(group, answers, strict=True):
            if held not in self._held or held.is_settled:
                continue  # settled meanwhile
            if answer is Settled.DONE:
                held.began(asked_s)
            elif answer is Settled.BUSY:
                held.busy(asked_s)
            elif held.handed.unconfirmed is not None:
                self._held.discard(held)  # its handler settled it: that is no reason to stop the handler
            elif not held.settling:  # else the settle has the answer
                gone = "it was settled, dropped or buried by somebody else"
                self._lost(held, gone if answer is Settled.GONE else "somebody else has it, or it was offered again")

    def _remark(self, late_s: float) -> None:
        if self._held and late_s > min(held.span_s for held in self._held) * _HELD_UP:
            queues = ", ".join(sorted({held.queue.name for held in self._held}))
            _log.warning(
                "nothing ran here for %.1f s, not even the heart-beat of leases (%s): if an async def handler blocks, "
                "make it a def, which runs in a thread",
                late_s,
                queues,
            )

    def _lost(self, held: Held, why: str) -> None:
        self._held.discard(held)
        held.lose(why)
