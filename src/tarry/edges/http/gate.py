"""Who is asking, and how much they may ask: keys, the limits on them, and what nobody may do from a browser."""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.requests import Request

from tarry.core.keys import Action, ApiKey, KeyText
from tarry.core.ports import AsyncStore
from tarry.edges.http.problems import Problem
from tarry.edges.http.settings import BrokerSettings

_CACHED = 10_000
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody with a key, or (without one) anybody at all, where that is allowed."""

    key: ApiKey | None

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
        self._keyless: tuple[float, bool] = (0.0, False)
        self._buckets: dict[str, tuple[float, float]] = {}
        self._slots: Counter[tuple[str, str]] = Counter()

    async def identify(self, request: Request) -> Caller:
        given = request.headers.get("authorization")
        text = request.headers.get("x-api-key") if given is None else _bearer(given)
        if text is None and given is None:
            if self._settings.anonymous and await self._no_key_is_there():
                _refuse_foreign_pages(request)
                return Caller(None)
            raise unauthorized("this needs an API key: Authorization: Bearer tarry_…")
        caller = Caller(await self._proven(text or ""))
        self._spend(caller)
        return caller

    async def still_valid(self, caller: Caller) -> bool:
        """For answers that go on for long: whether the key would be taken again."""
        if caller.key is None:
            return self._settings.anonymous and await self._no_key_is_there()
        found = await self._find(caller.key.id)
        return found is not None and found.active

    def forget(self) -> None:
        """Keys have changed."""
        self._known.clear()
        self._keyless = (0.0, False)

    @contextmanager
    def slot(self, caller: Caller, kind: str, most: int) -> Generator[None]:
        """One of the long answers that a caller may have under way."""
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

    async def _proven(self, text: str) -> ApiKey:
        parsed = KeyText.parse(text)
        # One that cannot be a key is compared like one that can: how long the answer takes says nothing.
        claimed = parsed or KeyText("0" * 12, "0" * 64)
        found = await self._find(claimed.id)
        if not claimed.proves(found) or parsed is None or found is None:
            raise unauthorized("this API key is not valid: it is unknown, expired or revoked")
        return found

    async def _find(self, id: str) -> ApiKey | None:
        now = time.monotonic()
        cached = self._known.get(id)
        if cached is not None and cached[0] > now:
            return cached[1]
        found = await self._store.find_key(id)
        self._known[id] = (now + self._settings.keys_cached_for.total_seconds(), found)
        self._known.move_to_end(id)
        while len(self._known) > _CACHED:
            self._known.popitem(last=False)
        return found

    async def _no_key_is_there(self) -> bool:
        now = time.monotonic()
        until, keyless = self._keyless
        if until <= now:
            keyless = not any(key.active for key in await self._store.keys())
            self._keyless = (now + self._settings.keys_cached_for.total_seconds(), keyless)
        return keyless

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


def _bearer(header: str) -> str:
    scheme, _, text = header.partition(" ")
    return text.strip() if scheme.lower() == "bearer" else ""


def unauthorized(detail: str) -> Problem:
    return Problem(
        401, "unauthorized", detail, hint="make one: tarry key create", headers={"www-authenticate": "Bearer"}
    )


def _refuse_foreign_pages(request: Request) -> None:
    """Without a key, what a browser sends by itself must not count: a page elsewhere could reach us through it."""
    host = urlsplit(f"//{request.headers.get('host', '')}").hostname
    if host not in LOOPBACK:
        raise Problem(403, "forbidden", "without a key the broker answers to localhost only", hint="tarry key create")
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        raise Problem(403, "forbidden", "without a key the broker does not answer to pages of other sites")
