"""The roles of a Redis store, and the request numbers that the blocking and the awaiting store share."""

from __future__ import annotations

import itertools
import os
import secrets
import time
from typing import Any

import msgspec

from tarry.core.clock import AuthorityClock, Clock
from tarry.core.errors import InvalidInput
from tarry.core.settings import StoreSettings
from tarry.core.wakeup.wait_queue import WaitQueue
from tarry.storage.redis.clients import is_cluster
from tarry.storage.redis.cron.role import RedisCron
from tarry.storage.redis.dead_letters.role import RedisDeadLetters
from tarry.storage.redis.journal.analytics import RedisAnalytics
from tarry.storage.redis.journal.role import RedisJournal
from tarry.storage.redis.maintenance.role import RedisMaintenance
from tarry.storage.redis.messages.role import RedisMessages
from tarry.storage.redis.messages.steps import MessageScan, Offers
from tarry.storage.redis.operation import Repetition, RoleContext, ScriptCall
from tarry.storage.redis.queues.role import RedisQueues
from tarry.storage.redis.rollups.role import RedisRollups
from tarry.storage.redis.search.role import RedisSearch
from tarry.storage.redis.security.role import RedisSecurity
from tarry.storage.redis.wakeup.listener import NotificationListener
from tarry.storage.redis.wakeup.role import RedisWakeup
from tarry.storage.redis.workers.role import RedisWorkers
from tarry.wire.base import plain


class Request(msgspec.Struct, frozen=True, gc=False):
    """The arguments of EVALSHA after the hash, the same for every try.

    The second key never exists. While a slot migrates, its node refuses a script with a missing key (TRYAGAIN), so no script
    sees a part of a queue whose keys move one by one."""

    slot: str
    number: int
    arguments: tuple[Any, ...]


class Requests:
    """Request numbers by slot. A slot has one request in flight, so a queue remembers one reply per slot, not per request."""

    def __init__(self, *, repeated_by_driver: bool) -> None:
        self._first = Repetition.FIRST_OF_DRIVER if repeated_by_driver else Repetition.FIRST
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._name = secrets.token_hex(6)
        self._numbers = itertools.count(1)
        self._slots = itertools.count(1)
        self._free: list[str] = []

    def begin(self, call: ScriptCall) -> Request:
        if self._pid != os.getpid():
            self._begin()  # after a fork: a request of the child with the parent's number would get the parent's reply
        try:
            slot = self._free.pop()
        except IndexError:
            slot = f"{self._name}:{next(self._slots)}"
        try:
            return _request(slot, next(self._numbers), call, self._first)
        except (UnicodeEncodeError, OverflowError, ValueError) as error:
            self._free.append(slot)
            raise InvalidInput(f"a key or another argument cannot be stored: {error}") from error

    def again(self, request: Request, call: ScriptCall) -> Request:
        """The same request, marked as repeated: its script compares it with the last request of the slot."""
        return _request(request.slot, request.number, call, Repetition.REPEATED)

    def end(self, request: Request) -> None:
        self._free.append(request.slot)


def _request(slot: str, number: int, call: ScriptCall, again: Repetition) -> Request:
    params = call.params
    if isinstance(params, dict):
        own = {"slot": slot, "request": number, "again": again or None, **params}
        packed = msgspec.msgpack.encode(
            {name: value for name, value in own.items() if value is not None}, enc_hook=plain
        )
    else:
        packed = params.packed(slot, number, again)
    return Request(slot, number, (2, call.key, f"{call.key}:none", packed, *call.payloads))


class RedisRoles:
    def __init__(self, url: str, clock: Clock | None, settings: StoreSettings) -> None:
        self.settings = settings
        context = RoleContext(clock or AuthorityClock(), settings)
        offers, scan = Offers(context), MessageScan(context)
        self.messages = RedisMessages(context, offers, scan)
        self.queues = RedisQueues(context)
        self.dead_letters = RedisDeadLetters(context)
        self.journal = RedisJournal(context)
        wait_queue = WaitQueue(
            scan_every=settings.scan_every, listening_scan_every=settings.listening_scan_every, monotonic=time.monotonic
        )
        self._listener = NotificationListener(
            url, settings, wait_queue, trusted=isinstance(context.clock, AuthorityClock)
        )
        self.wakeup = RedisWakeup(context, wait_queue, self._listener)
        self.cron = RedisCron(context, self.queues)
        self.security = RedisSecurity(context, offers)
        self.maintenance = RedisMaintenance(context)
        self.workers = RedisWorkers(context)
        self.rollups = RedisRollups(context, self.queues, self.journal, self.dead_letters, self.cron)
        self.search = RedisSearch(context, scan)
        self.analytics = RedisAnalytics(context, self.journal)
        self._requests = Requests(repeated_by_driver=is_cluster(url))
