"""`WakeupRole` on Redis: wait/notify with a regular scan."""

from __future__ import annotations

from datetime import timedelta

from tarry.core.wakeup.wait_queue import WaitHint, WaitQueue
from tarry.storage.redis.operation import Op, RedisRole, RoleContext, duration, operation, since
from tarry.storage.redis.wakeup.listener import NotificationListener

_LONGER = timedelta(seconds=5)
"""How long after its sleep a process is still notified, until it announces the next sleep."""


class RedisWakeup(RedisRole):
    def __init__(self, context: RoleContext, wait_queue: WaitQueue, listener: NotificationListener) -> None:
        super().__init__(context)
        self.wait_queue = wait_queue
        self._listener = listener

    @operation
    def announce(self, queue: str, *, sleep_for: timedelta, type: str | None = None) -> Op[WaitHint]:
        self._listener.ensure()
        notified_for = sleep_for + _LONGER if self._listener.is_listening else timedelta(0)
        due_in = yield from self._in_queue(
            queue,
            "wakeup/announce",
            channel=self._listener.channel,
            type=type,
            sleep_for=duration(sleep_for),
            notified_for=duration(notified_for) or None,
        )
        return WaitHint(since(due_in) if due_in else None, notified_for)
