"""Keys are looked up once for concurrent requests, and never after they were forgotten."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

import pytest
from starlette.requests import Request

from tarry.app import AsyncApp
from tarry.core.errors import StoreUnavailable
from tarry.edges.http import auth as auth_module
from tarry.edges.http.auth import Authenticator
from tarry.edges.http.problems import Problem
from tarry.edges.http.settings import BrokerSettings
from tarry.storage.memory import AsyncMemoryStore, MemoryStore
from tests.kit.calls import call_of, replace_call

CROWD = 50


class Held(AsyncMemoryStore):
    """Answers questions about keys when it is let go, and counts them."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.lookups = 0
        self.reached = asyncio.Event()
        self.go_on = asyncio.Event()
        self.away = False
        call = call_of(self, "security.keys")
        replace_call(self, "security.keys", lambda *args: self._held(call(*args)))

    async def _held(self, lookup: Any) -> Any:
        self.lookups += 1
        result = await lookup
        self.reached.set()
        await self.go_on.wait()
        if self.away:
            raise StoreUnavailable("away")
        return result


def request(key: str | None = None) -> Request:
    headers = [(b"host", b"localhost"), *([] if key is None else [(b"x-api-key", key.encode())])]
    scope = {"type": "http", "method": "GET", "path": "/", "headers": headers, "query_string": b""}
    return Request({**scope, "client": ("127.0.0.1", 123), "http_version": "1.1"})


async def crowd(authenticator: Authenticator, store: Held, key: str | None) -> list[Any]:
    lookups = [asyncio.create_task(authenticator.identify(request(key))) for _ in range(CROWD)]
    await store.reached.wait()
    for _ in range(3):
        await asyncio.sleep(0)  # so that every task has come as far as it can
    store.go_on.set()
    return await asyncio.gather(*lookups, return_exceptions=True)


def test_concurrent_requests_without_keys_cause_one_lookup() -> None:
    async def story() -> None:
        store = Held()
        authenticator = Authenticator(store, BrokerSettings(anonymous=True))
        callers = await crowd(authenticator, store, None)
        assert (store.lookups, {caller.id for caller in callers}) == (1, {"anonymous"})
        assert (await authenticator.identify(request())).id == "anonymous"
        assert store.lookups == 1, "it is known for a while"

    asyncio.run(story())


def test_concurrent_requests_with_one_key_cause_one_lookup() -> None:
    async def story() -> None:
        store = Held()
        issued = await AsyncApp(store).keys.create("k", ["read"])
        callers = await crowd(Authenticator(store, BrokerSettings()), store, issued.text)
        assert (store.lookups, {caller.id for caller in callers}) == (1, {issued.key.id})

    asyncio.run(story())


def test_a_lookup_begun_before_keys_changed_is_not_cached() -> None:
    async def story() -> None:
        store = Held()
        issued = await AsyncApp(store).keys.create("k", ["read"])
        authenticator = Authenticator(store, BrokerSettings(keys_cached_for=timedelta(hours=1)))
        first = asyncio.create_task(authenticator.identify(request(issued.text)))
        await store.reached.wait()
        await store.run(store.security.revoke_key(issued.key.id))
        authenticator.forget()
        store.go_on.set()
        assert (await first).id == issued.key.id, "it came before"
        with pytest.raises(Problem):
            await authenticator.identify(request(issued.text))

    asyncio.run(story())


def test_a_cancelled_request_does_not_cancel_the_lookup_of_the_others() -> None:
    async def story() -> None:
        store = Held()
        authenticator = Authenticator(store, BrokerSettings(anonymous=True))
        first = asyncio.create_task(authenticator.identify(request()))
        await store.reached.wait()
        second = asyncio.create_task(authenticator.identify(request()))
        await asyncio.sleep(0)
        first.cancel()
        store.go_on.set()
        assert (await second).id == "anonymous"
        assert store.lookups == 1

    asyncio.run(story())


def test_a_failed_lookup_is_repeated() -> None:
    async def story() -> None:
        store = Held()
        store.away = True
        authenticator = Authenticator(store, BrokerSettings(anonymous=True))
        assert {type(result) for result in await crowd(authenticator, store, None)} == {StoreUnavailable}
        store.away = False
        assert (await authenticator.identify(request())).id == "anonymous"
        assert store.lookups == 2

    asyncio.run(story())


def test_a_flood_of_invented_keys_causes_one_lookup_at_a_time() -> None:
    async def story() -> None:
        store = Held()
        issued = await AsyncApp(store).keys.create("k", ["read"])
        authenticator = Authenticator(store, BrokerSettings())
        texts = [f"tarry_{n:012x}_{'0' * 64}" for n in range(1_000)]
        first = [asyncio.create_task(authenticator.identify(request(text))) for text in texts[:500]]
        await store.reached.wait()
        more = [asyncio.create_task(authenticator.identify(request(text))) for text in (*texts[500:], issued.text)]
        for _ in range(10):
            await asyncio.sleep(0)  # so that all have come as far as they can
        store.go_on.set()
        results = await asyncio.gather(*first, *more, return_exceptions=True)
        assert {type(result) for result in results[:-1]} == {Problem}
        known = results[-1]
        assert not isinstance(known, BaseException)
        assert known.id == issued.key.id, "a key that is not cached yet is not delayed by them"
        assert store.lookups <= 3

    asyncio.run(story())


def test_keys_that_were_made_up_push_none_out_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        monkeypatch.setattr(auth_module, "_CACHED_KEYS", 10)
        store = Held()
        store.go_on.set()
        issued = await AsyncApp(store).keys.create("k", ["read"])
        authenticator = Authenticator(store, BrokerSettings(keys_cached_for=timedelta(hours=1)))
        await authenticator.identify(request(issued.text))
        for n in range(20):
            with pytest.raises(Problem):
                await authenticator.identify(request(f"tarry_{n:012x}_{'0' * 64}"))
        lookups = store.lookups
        await authenticator.identify(request(issued.text))
        assert store.lookups == lookups

    asyncio.run(story())


class TestAWatchedKey:
    def test_is_looked_up_when_its_cached_result_expires_and_not_a_full_period_later(self) -> None:
        async def story() -> None:
            store = Held()
            store.go_on.set()
            issued = await AsyncApp(store).keys.create("k", ["read"])
            authenticator = Authenticator(store, BrokerSettings(keys_cached_for=timedelta(hours=1)))
            caller = await authenticator.identify(request(issued.text))
            # As if another request had looked it up nearly an hour ago.
            authenticator._known[issued.key.id] = (time.monotonic() + 0.5, issued.key)
            await store.run(store.security.revoke_key(issued.key.id))
            with authenticator.watched(caller) as ended:
                assert await asyncio.wait({ended}, timeout=30) == ({ended}, set())

        asyncio.run(story())

    def test_stays_valid_when_a_look_up_fails_in_an_unexpected_way(self) -> None:
        class Broken(Held):
            broken = False

            def __init__(self) -> None:
                super().__init__()
                self.look_ups = asyncio.Semaphore(0)

            async def _held(self, lookup: Any) -> Any:
                self.look_ups.release()
                result = await super()._held(lookup)
                if self.broken:
                    raise RuntimeError("not an error of Tarry")
                return result

        async def looked_up_twice(store: Broken) -> None:
            async with asyncio.timeout(30):
                for _ in range(2):
                    await store.look_ups.acquire()

        async def story() -> None:
            store = Broken()
            store.go_on.set()
            issued = await AsyncApp(store).keys.create("k", ["read"])
            authenticator = Authenticator(store, BrokerSettings(keys_cached_for=timedelta(0)))
            caller = await authenticator.identify(request(issued.text))
            await store.look_ups.acquire()
            store.broken = True
            with authenticator.watched(caller) as ended:
                await looked_up_twice(store)
                assert not ended.done()
                store.broken = False
                await looked_up_twice(store)
                assert not ended.done()
                await store.run(store.security.revoke_key(issued.key.id))
                assert await asyncio.wait({ended}, timeout=30) == ({ended}, set())

        asyncio.run(story())
