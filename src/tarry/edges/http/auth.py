"""Who is asking, and how much they may ask: keys, the limits on them, and what nobody may do from a browser."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.requests import Request

from tarry.core.errors import TarryError
from tarry.core.keys import Action, ApiKey, KeyText
from tarry.core.ports import AsyncStore
from tarry.core.sessions import Session
from tarry.edges.http.origins import refuse_other_sites, require_this_machine
from tarry.edges.http.problems import Problem
from tarry.edges.http.settings import BrokerSettings

R = TypeVar("R")

_CACHED = 10_000
_WATCH_EVERY_S = 0.1
_log = logging.getLogger("tarry.http")


class _End:
    """Behind the last item of a stream."""


_END = _End()
SESSION = "tarry_events"
"""The cookie of a browser that has signed in for live events."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody with a key, or (without one) anybody at all, where that is allowed."""

    key: ApiKey | None
    until_s: float | None = None
    """By this process's own clock: when it has to sign in again. None: never."""

    @property
    def id(self) -> str:
        return "anonymous" if self.key is None else self.key.id

    def may(self, action: Action) -> bool:
        return self.key is None or action in self.key.actions

    def allows(self, action: Action, queue: str | None) -> bool:
        return self.key is None or self.key.allows(action, queue)

    def require(self, action: Action, queue: str | None) -> None:
        """Decided by names alone: the answer is the same whether the queue exists or not."""
        if not self.allows(action, queue):
            where = "all queues" if queue is None else f"queue {queue!r:.120}"
            raise Problem(403, "forbidden", f"this key may not {action} on {where}", hint="see: tarry key list")


class Gate:
    def __init__(self, store: AsyncStore, settings: BrokerSettings) -> None:
        self._store = store
        self._settings = settings
        self._known: OrderedDict[str, tuple[float, ApiKey | None]] = OrderedDict()
        self._unknown: OrderedDict[str, tuple[float, ApiKey | None]] = OrderedDict()
        self._gathered: set[str] | None = None
        self._lookup: asyncio.Task[dict[str, ApiKey]] | None = None
        self._keyless_until = 0.0
        self._has_had_a_key = False
        self._asking: dict[str, asyncio.Task[Any]] = {}
        self._buckets: dict[str, tuple[float, float]] = {}
        self._slots: Counter[tuple[str, str]] = Counter()
        self.long_per_caller = sys.maxsize
        """Polls, streams, exports and imports together. A server with a limit of connections lowers it."""
        self._watches: dict[tuple[str, float | None], tuple[asyncio.Task[None], int]] = {}
        self._changed = asyncio.Event()

    async def identify(self, request: Request, *, by_cookie: bool = False, changes_by_get: bool = False) -> Caller:
        """`by_cookie`: the session of a browser will do. `changes_by_get`: the route is a GET and yet changes something."""
        text = key_text(request)
        if text is None:
            if self._settings.anonymous and await self._never_had_a_key():
                require_this_machine(request)
                refuse_other_sites(request, changes_by_get=changes_by_get)
                return Caller(None)
            if by_cookie and SESSION in request.cookies:
                return await self._signed_in(request)
            raise unauthorized("this needs an API key: Authorization: Bearer tarry_…")
        caller = Caller(await self._proven(text))
        self._spend(caller)
        return caller

    async def still_valid(self, caller: Caller) -> bool:
        """For answers that go on for long: whether the key would be taken again."""
        if caller.key is None:
            return self._settings.anonymous and await self._never_had_a_key()
        found = await self._find(caller.key.id)
        in_time = caller.until_s is None or time.monotonic() < caller.until_s
        return in_time and found is not None and found.active

    def has_seen(self, id: str) -> bool:
        """Whether the last look-up of this id has found a key, valid or not."""
        return id in self._known

    async def require_valid(self, caller: Caller) -> None:
        if not await self.still_valid(caller):
            raise unauthorized("this API key is no longer valid")

    @contextmanager
    def watched(self, caller: Caller) -> Generator[asyncio.Task[None]]:
        """A task that is done once the caller would be refused; one for all long requests of a key."""
        place = (caller.id, caller.until_s)
        task, users = self._watches.get(place, (None, 0))
        if task is None:
            task = asyncio.create_task(self._watch(caller), name="tarry-key")
        self._watches[place] = (task, users + 1)
        try:
            yield task
        finally:
            users = self._watches[place][1] - 1
            self._watches[place] = (task, users)
            if not users:
                del self._watches[place]
                task.cancel()

    async def while_valid(self, caller: Caller, items: AsyncIterator[R]) -> AsyncGenerator[R]:
        """The items as they come, and 401 as soon as the caller would be refused, whether or not another one comes."""
        with self.watched(caller) as ended:
            while True:
                coming = asyncio.ensure_future(anext(items, _END))
                try:
                    await asyncio.wait({coming, ended}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    if not coming.done():
                        coming.cancel()
                        await asyncio.wait({coming})
                if ended.done():
                    _ = coming.cancelled() or coming.exception()
                    raise unauthorized("this API key is no longer valid")
                if isinstance(item := coming.result(), _End):
                    return
                yield item

    async def _watch(self, caller: Caller) -> None:
        while True:
            changed, wait_s = self._changed, self._settings.keys_cached_for.total_seconds()
            try:
                if not await self.still_valid(caller):
                    return
                wait_s = self._outdated_in_s(caller, wait_s)
            except TarryError:
                pass  # without a database the key can do nothing, and it is asked again
            except Exception:
                # An error says nothing about the key: to end the task would refuse a valid one.
                _log.exception("the look-up of key %s failed and is repeated", caller.id)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(wait_s, _WATCH_EVERY_S)):
                    await changed.wait()

    def _outdated_in_s(self, caller: Caller, cached_for_s: float) -> float:
        """Until the cached answer expires, which other requests may have stored earlier; a full period where none is."""
        now, cached = time.monotonic(), self._known.get(caller.id)
        until = now + cached_for_s if cached is None else cached[0]
        if caller.key is None:
            until = self._keyless_until
        return min(until, caller.until_s or until) - now

    def forget(self) -> None:
        """Keys have changed. What is being asked at this moment is not kept either: its answer may be of before."""
        self._known.clear()
        self._unknown.clear()
        self._keyless_until = 0.0
        self._asking.clear()
        self._changed.set()
        self._changed = asyncio.Event()

    @contextmanager
    def slot(self, caller: Caller, kind: str, most: int) -> Generator[None]:
        """One of the long requests that a caller may have in progress: of this kind, and of all kinds together."""
        with self._one_of(caller, kind, most), self._one_of(caller, "long requests", self.long_per_caller):
            yield

    @contextmanager
    def _one_of(self, caller: Caller, kind: str, most: int) -> Generator[None]:
        place = (caller.id, kind)
        if self._slots[place] >= most:
            raise Problem(
                429, "too_many", f"this key has {most:,} {kind} under way already", headers={"retry-after": "1"}
            )
        self._slots[place] += 1
        try:
            yield
        finally:
            self._slots[place] -= 1
            if not self._slots[place]:
                del self._slots[place]

    def taken(self, kind: str) -> int:
        return sum(n for (_, of), n in self._slots.items() if of == kind)

    async def _signed_in(self, request: Request) -> Caller:
        refuse_other_sites(request)
        session = Session.parse(request.cookies[SESSION])
        found = None if session is None else await self._find(session.key_id)
        over = unauthorized("this session is over: sign in again, POST /v1/session")
        if session is None or not session.proves(found):
            raise over  # before the database is asked for the time: made-up sessions must not reach it
        now = await self._store.now()
        if now >= session.until:
            raise over
        caller = Caller(found, time.monotonic() + (session.until - now).total_seconds())
        self._spend(caller)
        return caller

    async def _proven(self, text: str) -> ApiKey:
        parsed = KeyText.parse(text)
        # One that cannot be a key is compared like one that can: how long the answer takes says nothing.
        claimed = parsed or KeyText("0" * 12, "0" * 64)
        found = await self._find(claimed.id)
        if not claimed.proves(found) or parsed is None or found is None:
            raise unauthorized("this API key is not valid: it is unknown, expired or revoked")
        return found

    async def _find(self, id: str) -> ApiKey | None:
        cached = self._known.get(id) or self._unknown.get(id)
        if cached is not None and cached[0] > time.monotonic():
            return cached[1]

        def keep(until: float, found: ApiKey | None) -> None:
            # Apart from each other: ids that were made up must not push keys out.
            cache, other = (self._known, self._unknown) if found is not None else (self._unknown, self._known)
            other.pop(id, None)
            cache[id] = (until, found)
            cache.move_to_end(id)
            while len(cache) > _CACHED:
                cache.popitem(last=False)

        return await self._shared(id, lambda: self._looked_up(id), keep)

    async def _looked_up(self, id: str) -> ApiKey | None:
        """With the others wanted at this moment: however many ids a client makes up, one statement runs at a time."""
        if self._gathered is None or self._lookup is None:
            self._gathered = set()
            self._lookup = asyncio.create_task(self._look_up(self._gathered, self._lookup))
        self._gathered.add(id)
        return (await asyncio.shield(self._lookup)).get(id)

    async def _look_up(self, ids: set[str], before: asyncio.Task[dict[str, ApiKey]] | None) -> dict[str, ApiKey]:
        if before is not None:
            await asyncio.wait({before})
        self._gathered = None
        return {key.id: key for key in await self._store.find_keys(sorted(ids))}

    async def _never_had_a_key(self) -> bool:
        """Expired and revoked keys count: a broker that was closed by a key is never open again. An error is no answer."""
        if self._has_had_a_key or self._keyless_until > time.monotonic():
            return not self._has_had_a_key

        async def look() -> bool:
            return not await self._store.keys()

        def keep(until: float, never: bool) -> None:  # noqa: FBT001 - as it was found
            self._keyless_until, self._has_had_a_key = until, not never

        return await self._shared("", look, keep)

    async def _shared(
        self, what: str, ask: Callable[[], Coroutine[Any, Any, R]], keep: Callable[[float, R], None]
    ) -> R:
        """Thousands may come at the moment at which an answer is too old: one of them asks for all."""
        asking = self._asking.get(what)
        if asking is None:
            asking = self._asking[what] = asyncio.create_task(ask())

            def answered(task: asyncio.Task[R]) -> None:
                if self._asking.get(what) is not task:
                    _ = task.cancelled() or task.exception()  # forgotten meanwhile, and perhaps by everybody
                    return
                del self._asking[what]
                if not task.cancelled() and task.exception() is None:
                    keep(time.monotonic() + self._settings.keys_cached_for.total_seconds(), task.result())

            asking.add_done_callback(answered)
        return await asyncio.shield(asking)

    def _spend(self, caller: Caller) -> None:
        """A bucket per key, which holds one second's worth of requests."""
        rate = self._settings.requests_per_s
        if rate is None:
            return
        now = time.monotonic()
        left, since = self._buckets.get(caller.id, (max(rate, 1.0), now))
        left = min(max(rate, 1.0), left + (now - since) * rate)
        if left < 1:
            self._buckets[caller.id] = (left, now)
            wait_s = max(1, round((1 - left) / rate))
            raise Problem(
                429, "rate_limited", f"this key may ask {rate:g} times a second", headers={"retry-after": str(wait_s)}
            )
        self._buckets[caller.id] = (left - 1, now)


def key_text(request: Request) -> str | None:
    """What was sent as a key, valid or not. None: nothing was."""
    header = request.headers.get("authorization")
    return request.headers.get("x-api-key") if header is None else _bearer(header)


def _bearer(header: str) -> str:
    scheme, _, text = header.partition(" ")
    return text.strip() if scheme.lower() == "bearer" else ""


def unauthorized(detail: str) -> Problem:
    return Problem(
        401, "unauthorized", detail, hint="make one: tarry key create", headers={"www-authenticate": "Bearer"}
    )
