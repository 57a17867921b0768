# Generated from src/tarry/api/waiting.py by tools/generate-blocking. Edit that file, then run `make generate`.
"""The blocking half of `tarry.api.waiting`."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol, TypeVar

from tarry.api.waiting import ThreadWaiter
from tarry.core.errors import UnknownQueue
from tarry.core.wakeup.wait_queue import Waiter, WaitGroup, WaitHint, WaitKey, WaitQueue

D = TypeVar("D")
Announce = Callable[[timedelta], WaitHint]
"""Announces to the store that this consumer is about to sleep for this long."""
_AFTER_DELIVERY_S = 0.005
"""After a delivery more messages are likely: poll again after this, before notifications are requested. Under load no
notifications are sent at all; only idle consumers are notified."""
_LOCKED_S = 0.01
"""A due message that could not be leased is locked by an open transaction: poll again soon, but not in a tight loop."""
_SAME_S = 0.001


class Sleeper(Waiter, Protocol):
    def sleep(self, seconds: float) -> None:
        """Wait until woken, at most this long."""
        ...


def wait_for(
    wait_queue: WaitQueue,
    key: WaitKey,
    timeout: timedelta | None,
    poll: Callable[[], list[D]],
    announce: Announce,
    waiter: Sleeper | None = None,
) -> list[D]:
    """Poll; then join the group; then, as its leader, sleep until a message may be deliverable, and poll again.

    Returns the result of the last poll: empty after the timeout. Every consumer leases for itself, so no message is leased
    for a consumer that has left."""
    monotonic = wait_queue.monotonic
    deadline = math.inf if timeout is None else monotonic() + timeout.total_seconds()
    deliveries = poll()
    if deliveries or monotonic() >= deadline:
        return deliveries
    waiter = waiter or ThreadWaiter(wait_queue.condition())
    group = wait_queue.join(key, waiter)
    try:
        if group.leader is not waiter:
            while group.leader is not waiter:
                if (remaining_s := deadline - monotonic()) <= 0:
                    return []
                waiter.sleep(remaining_s)
            if deliveries := poll():
                group.delivered()
                return deliveries
        is_locked = False
        while (remaining_s := deadline - monotonic()) > 0:
            if group.just_delivered:
                group.just_delivered = False
                waiter.sleep(min(_AFTER_DELIVERY_S, remaining_s))
            elif not _sleep(wait_queue, group, waiter, announce, deadline, is_locked=is_locked):
                continue  # no sign of a message: the next announcement would detect one, too
            if deliveries := poll():
                group.delivered()
                return deliveries
            is_locked = group.head_at <= group.announced_at
        return []
    finally:
        wait_queue.leave(key, waiter)


def _sleep(
    wait_queue: WaitQueue,
    group: WaitGroup,
    waiter: Sleeper,
    announce: Announce,
    deadline: float,
    *,
    is_locked: bool,
) -> bool:
    """Announce the sleep, then sleep as long as the hint allows. True if a message may be deliverable, or after the timeout.

    `is_locked`: by the last hint a message was due, but the poll did not return it."""
    monotonic = wait_queue.monotonic
    announced_at = monotonic()
    # Producers did not notify us for a while: treat this as the beginning of the wait.
    group.sleeps = group.sleeps + 1 if group.notified_until > announced_at else 0
    sleep_s = wait_queue.sleep_s(group)
    group.notified_at = math.inf
    group.announced_at = announced_at
    try:
        hint = announce(timedelta(seconds=sleep_s))
    except UnknownQueue:
        # It was renamed or deleted since the last poll. Waiting creates no queue; the next poll creates it, or raises.
        hint = WaitHint(timedelta(0))
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
            waiter.sleep(end - now)
    finally:
        group.asleep_until = math.inf
    may_be_due = group.notified_at == -math.inf or due_s <= sleep_s
    # `delivered` resets this if the next poll returns messages.
    group.empty_polls = group.empty_polls + 1 if may_be_due else 0
    return may_be_due or now >= deadline
