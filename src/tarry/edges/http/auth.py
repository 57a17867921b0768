"""Authentication by API key or browser session, and limits per caller."""

import asyncio
import logging
import sys
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.requests import Request

from tarry.core.errors import TarryError
from tarry.core.ports import AsyncStore
from tarry.core.security.api_keys import Action, ApiKey, KeyText
from tarry.core.security.browser_sessions import DASHBOARD, EVENTS, Session
from tarry.edges.http.origins import refuse_other_sites, require_this_machine
from tarry.edges.http.problems import Problem
from tarry.edges.http.settings import BrokerSettings
from tarry.services.shared_result import SharedResult, retrieve_error

R = TypeVar("R")

_CACHED_KEYS = 10_000
_WATCH_EVERY_S = 0.1
_log = logging.getLogger("tarry.http")
_END = object()
SESSION = "tarry_events"
"""Cookie name of a browser session for live events."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The key of a request. None: an anonymous client, where the settings allow it."""

    key: ApiKey | None
    until_s: float | None = None
    """When the browser session expires, by the monotonic clock of this process. None: never."""

    @property
    def id(self) -> str:
        return "anonymous" if self.key is None else self.key.id

    def may(self, action: Action) -> bool:
        return self.key is None or action in self.key.actions

    def allows(self, action: Action, queue: str | None) -> bool:
        return self.key is None or self.key.allows(action, queue)

    def require(self, action: Action, queue: str | None) -> None:
        """Raise 403 without the right. Decided by name alone: the response does not reveal whether the queue exists."""
        if not self.allows(action, queue):
            where = "all queues" if queue is None else f"queue {queue!r:.120}"
            raise Problem(403, "forbidden", f"this key may not {action} on {where}", hint="see: tarry key list")


class Authenticator:
    """Identifies callers and limits them. Keys are cached for `keys_cached_for`."""

    def __init__(self, store: AsyncStore, settings: BrokerSettings) -> None:
        self._store = store
        self._settings = settings
        # Separate caches: made-up ids must not evict keys.
        self._known: OrderedDict[str, tuple[float, ApiKey | None]] = OrderedDict()
        self._unknown: OrderedDict[str, tuple[float, ApiKey | None]] = OrderedDict()
        self._next_ids: set[str] | None = None
        self._lookup: asyncio.Task[dict[str, ApiKey]] | None = None
        self._has_keys = SharedResult(self._find_any, settings.keys_cached_for.total_seconds())
        self._has_had_a_key = False
        self._buckets: dict[str, tuple[float, float]] = {}
        self._slots: Counter[tuple[str, str]] = Counter()
        self.long_per_caller = sys.maxsize
        """Limit on polls, streams, exports and imports together. A server with a connection limit lowers it."""
        self._watches: dict[tuple[str, float | None], tuple[asyncio.Task[None], int]] = {}
        self._changed = asyncio.Event()
        """Set and replaced when keys change. Results of lookups that started before the change are not cached."""

    async def identify(self, request: Request, *, by_cookie: bool = False, changes_by_get: bool = False) -> Caller:
        """Return the caller, or raise 401. `by_cookie`: accept a browser session. `changes_by_get`: a GET that writes."""
        text = key_text(request)
        if text is None:
            if self._settings.anonymous and await self._never_had_a_key():
                require_this_machine(request)
                refuse_other_sites(request, changes_by_get=changes_by_get)
                return Caller(None)
            if by_cookie and SESSION in request.cookies:
                refuse_other_sites(request)
                return await self._signed_in(request.cookies[SESSION], EVENTS)
            raise unauthorized("this needs an API key: Authorization: Bearer tarry_…")
        return await self.sign_in(text)

    async def identify_page(self, request: Request, cookie: str) -> Caller:
        """The caller of a dashboard page: by key, by the session in this cookie, or on this machine without either.
        A link on another site may lead to a page, but requests that another site's page sends are refused."""
        if key_text(request) is not None:
            return await self.identify(request)
        is_followed = request.method == "GET" and request.headers.get("sec-fetch-dest") == "document"
        if not is_followed:
            refuse_other_sites(request)
        if self._settings.anonymous and await self._never_had_a_key():
            require_this_machine(request)
            return Caller(None)
        if cookie in request.cookies:
            return await self._signed_in(request.cookies[cookie], DASHBOARD)
        raise unauthorized("this needs an API key: sign in with one")

    async def sign_in(self, text: str) -> Caller:
        """The caller that has this key."""
        caller = Caller(await self._proven(text))
        self._spend(caller)
        return caller

    async def still_valid(self, caller: Caller) -> bool:
        """Whether the caller would still be accepted; for long requests."""
        if caller.key is None:
            return self._settings.anonymous and await self._never_had_a_key()
        key = await self._find(caller.key.id)
        in_time = caller.until_s is None or time.monotonic() < caller.until_s
        return in_time and key is not None and key.active

    def has_seen(self, id: str) -> bool:
        """Whether the last lookup of this id found a key, valid or not."""
        return id in self._known

    async def require_valid(self, caller: Caller) -> None:
        if not await self.still_valid(caller):
            raise unauthorized("this API key is no longer valid")

    @contextmanager
    def watched(self, caller: Caller) -> Generator[asyncio.Task[None]]:
        """A task that completes once the caller would be refused. Long requests of a key share one task."""
        watch_key = (caller.id, caller.until_s)
        task, users = self._watches.get(watch_key, (None, 0))
        if task is None:
            task = asyncio.create_task(self._watch(caller), name="tarry-key")
        self._watches[watch_key] = (task, users + 1)
        try:
            yield task
        finally:
            users = self._watches[watch_key][1] - 1
            self._watches[watch_key] = (task, users)
            if not users:
                del self._watches[watch_key]
                task.cancel()

    async def while_valid(self, caller: Caller, items: AsyncIterator[R]) -> AsyncGenerator[R]:
        """Yield items as they arrive. Raises 401 as soon as the caller would be refused, even while no item arrives."""
        with self.watched(caller) as ended:
            while True:
                coming: asyncio.Future[Any] = asyncio.ensure_future(anext(items, _END))
                try:
                    await asyncio.wait({coming, ended}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    if not coming.done():
                        coming.cancel()
                        await asyncio.wait({coming})
                if ended.done():
                    retrieve_error(coming)
                    raise unauthorized("this API key is no longer valid")
                item = coming.result()
                if item is _END:
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
                pass  # without a database the key can do nothing; look it up again
            except Exception:
                # An error proves nothing about the key: completing the task would refuse a valid one.
                _log.exception("the lookup of key %s failed and is repeated", caller.id)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(wait_s, _WATCH_EVERY_S)):
                    await changed.wait()

    def _outdated_in_s(self, caller: Caller, cached_for_s: float) -> float:
        """Seconds until the cached result expires. Another request may have stored it earlier."""
        now, cached = time.monotonic(), self._known.get(caller.id)
        until = now + cached_for_s if cached is None else cached[0]
        if caller.key is None:
            until = self._has_keys.until_s
        return min(until, caller.until_s or until) - now

    def forget(self) -> None:
        """Clear the caches because keys have changed."""
        self._known.clear()
        self._unknown.clear()
        self._has_keys.forget()
        self._changed.set()
        self._changed = asyncio.Event()

    @contextmanager
    def slot(self, caller: Caller, kind: str, most: int) -> Generator[None]:
        """Count one long request in progress, limited per kind and over all kinds."""
        slots = {(caller.id, kind): most, (caller.id, "long requests"): self.long_per_caller}
        for (_, of), limit in slots.items():
            if self._slots[caller.id, of] >= limit:
                detail = f"this key has {limit:,} {of} in progress, which is the limit"
                raise Problem(429, "too_many", detail, hint="retry after Retry-After", headers={"retry-after": "1"})
        self._slots.update(slots.keys())
        try:
            yield
        finally:
            self._slots.subtract(slots.keys())
            for slot in slots:
                if not self._slots[slot]:
                    del self._slots[slot]

    def taken(self, kind: str) -> int:
        return sum(n for (_, of), n in self._slots.items() if of == kind)

    async def _signed_in(self, text: str, purpose: str) -> Caller:
        session = Session.parse(text)
        key = None if session is None else await self._find(session.key_id)
        expired = unauthorized("this session has ended: sign in again, POST /v1/session")
        if session is None or not session.proves(key, purpose):
            raise expired  # checked before the query for the time: made-up sessions must not reach the database
        now = await self._store.run(self._store.queues.now())
        if now >= session.until:
            raise expired
        caller = Caller(key, time.monotonic() + (session.until - now).total_seconds())
        self._spend(caller)
        return caller

    async def _proven(self, text: str) -> ApiKey:
        parsed = KeyText.parse(text)
        # Malformed text is compared like a well-formed key: the response time reveals nothing.
        claimed = parsed or KeyText("0" * 12, "0" * 64)
        key = await self._find(claimed.id)
        if not claimed.proves(key) or parsed is None or key is None:
            raise unauthorized("this API key is not valid: it is unknown, expired or revoked")
        return key

    async def _find(self, id: str) -> ApiKey | None:
        cached = self._known.get(id) or self._unknown.get(id)
        if cached is not None and cached[0] > time.monotonic():
            return cached[1]
        # One statement at a time, however many ids clients make up: the next one looks up all ids that have arrived.
        if self._next_ids is None or self._lookup is None:
            self._next_ids = set()
            self._lookup = asyncio.create_task(self._look_up(self._next_ids, self._lookup))
            self._lookup.add_done_callback(retrieve_error)
        self._next_ids.add(id)
        return (await asyncio.shield(self._lookup)).get(id)

    async def _look_up(self, ids: set[str], before: asyncio.Task[dict[str, ApiKey]] | None) -> dict[str, ApiKey]:
        if before is not None:
            await asyncio.wait({before})
        self._next_ids, changed = None, self._changed
        keys = {key.id: key for key in await self._store.run(self._store.security.keys(sorted(ids)))}
        if changed is self._changed:
            until = time.monotonic() + self._settings.keys_cached_for.total_seconds()
            for id in ids:
                self._cache(id, until, keys.get(id))
        return keys

    def _cache(self, id: str, until: float, key: ApiKey | None) -> None:
        cache, other = (self._unknown, self._known) if key is None else (self._known, self._unknown)
        other.pop(id, None)
        cache[id] = (until, key)
        cache.move_to_end(id)
        while len(cache) > _CACHED_KEYS:
            cache.popitem(last=False)

    async def _never_had_a_key(self) -> bool:
        """Whether no key was ever created, expired and revoked ones included: with a key, a broker stops being anonymous."""
        if not self._has_had_a_key:
            self._has_had_a_key = await self._has_keys()
        return not self._has_had_a_key

    async def _find_any(self) -> bool:
        return bool(await self._store.run(self._store.security.keys()))

    def _spend(self, caller: Caller) -> None:
        """Take one request from the key's token bucket, which holds one second of requests."""
        rate = self._settings.requests_per_s
        if rate is None:
            return
        now = time.monotonic()
        left, since = self._buckets.get(caller.id, (max(rate, 1.0), now))
        left = min(max(rate, 1.0), left + (now - since) * rate)
        if left < 1:
            self._buckets[caller.id] = (left, now)
            wait_s = max(1, round((1 - left) / rate))
            detail = f"this key is limited to {rate:g} requests per second"
            raise Problem(429, "rate_limited", detail, headers={"retry-after": str(wait_s)})
        self._buckets[caller.id] = (left - 1, now)


def key_text(request: Request) -> str | None:
    """The text sent as a key, valid or not, or None. An empty one is none: scripts and Relay's sample workers send it if they
    have no key.
    """
    header = request.headers.get("authorization")
    if header is None:
        return request.headers.get("x-api-key") or None
    scheme, _, text = header.partition(" ")
    return text.strip() or None if scheme.lower() == "bearer" else ""


def is_program(request: Request) -> bool:
    """Whether the head has a place for a key, even an empty one. A browser adds none by itself, as it does with the user and
    password of a host application (`Authorization: Basic`).
    """
    return "x-api-key" in request.headers or request.headers.get("authorization", "").lower().startswith("bearer")


def unauthorized(detail: str) -> Problem:
    headers = {"www-authenticate": "Bearer"}
    return Problem(401, "unauthorized", detail, hint="create a key: tarry key create", headers=headers)
