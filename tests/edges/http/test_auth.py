"""Keys are looked up once for all who ask at the same time, and never after they were forgotten."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from starlette.requests import Request

from tarry.app import AsyncApp
from tarry.core.errors import StoreUnavailable
from tarry.core.keys import ApiKey
from tarry.edges.http import gate as gate_module
from tarry.edges.http.gate import Gate
from tarry.edges.http.problems import Problem
from tarry.edges.http.settings import BrokerSettings
from tarry.storage.memory import AsyncMemoryStore, MemoryStore

CROWD = 50


class Held(AsyncMemoryStore):
    """Answers questions about keys when it is let go, and counts them."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.asked = 0
        self.reached = asyncio.Event()
        self.go_on = asyncio.Event()
        self.away = False

    async def keys(self, *, conn: Any = None) -> list[ApiKey]:
        return await self._held(super().keys())

    async def find_keys(self, ids: Sequence[str], *, conn: Any = None) -> list[ApiKey]:
        return await self._held(super().find_keys(ids))

    async def _held(self, asking: Any) -> Any:
        self.asked += 1
        found = await asking
        self.reached.set()
        await self.go_on.wait()
        if self.away:
            raise StoreUnavailable("away")
        return found


def request(key: str | None = None) -> Request:
    headers = [(b"host", b"localhost"), *([] if key is None else [(b"x-api-key", key.encode())])]
    scope = {"type": "http", "method": "GET", "path": "/", "headers": headers, "query_string": b""}
    return Request({**scope, "client": ("127.0.0.1", 123), "http_version": "1.1"})


async def crowd(gate: Gate, store: Held, key: str | None) -> list[Any]:
    asking = [asyncio.create_task(gate.identify(request(key))) for _ in range(CROWD)]
    await store.reached.wait()
    for _ in range(3):
        await asyncio.sleep(0)  # so that everybody has come as far as they can
    store.go_on.set()
    return await asyncio.gather(*asking, return_exceptions=True)


def test_a_crowd_without_keys_asks_once() -> None:
    async def story() -> None:
        store = Held()
        gate = Gate(store, BrokerSettings(anonymous=True))
        callers = await crowd(gate, store, None)
        assert (store.asked, {caller.id for caller in callers}) == (1, {"anonymous"})
        assert (await gate.identify(request())).id == "anonymous"
        assert store.asked == 1, "it is known for a while"

    asyncio.run(story())


def test_a_crowd_with_one_key_asks_once() -> None:
    async def story() -> None:
        store = Held()
        issued = await AsyncApp(store).keys.create("k", ["read"])
        callers = await crowd(Gate(store, BrokerSettings()), store, issued.text)
        assert (store.asked, {caller.id for caller in callers}) == (1, {issued.key.id})

    asyncio.run(story())


def test_what_was_asked_before_keys_changed_is_not_kept() -> None:
    async def story() -> None:
        store = Held()
        issued = await AsyncApp(store).keys.create("k", ["read"])
        gate = Gate(store, BrokerSettings(keys_cached_for=timedelta(hours=1)))
        first = asyncio.create_task(gate.identify(request(issued.text)))
        await store.reached.wait()
        await store.revoke_key(issued.key.id)
        gate.forget()
        store.go_on.set()
        assert (await first).id == issued.key.id, "it came before"
        with pytest.raises(Problem):
            await gate.identify(request(issued.text))

    asyncio.run(story())


def test_whoever_leaves_does_not_take_the_answer_from_the_others() -> None:
    async def story() -> None:
        store = Held()
        gate = Gate(store, BrokerSettings(anonymous=True))
        first = asyncio.create_task(gate.identify(request()))
        await store.reached.wait()
        second = asyncio.create_task(gate.identify(request()))
        await asyncio.sleep(0)
        first.cancel()
        store.go_on.set()
        assert (await second).id == "anonymous"
        assert store.asked == 1

    asyncio.run(story())


def test_a_question_that_failed_is_asked_again() -> None:
    async def story() -> None:
        store = Held()
        store.away = True
        gate = Gate(store, BrokerSettings(anonymous=True))
        assert {type(one) for one in await crowd(gate, store, None)} == {StoreUnavailable}
        store.away = False
        assert (await gate.identify(request())).id == "anonymous"
        assert store.asked == 2

    asyncio.run(story())


def test_a_flood_of_keys_that_were_made_up_asks_one_question_at_a_time() -> None:
    async def story() -> None:
        store = Held()
        issued = await AsyncApp(store).keys.create("k", ["read"])
        gate = Gate(store, BrokerSettings())
        texts = [f"tarry_{n:012x}_{'0' * 64}" for n in range(1_000)]
        first = [asyncio.create_task(gate.identify(request(text))) for text in texts[:500]]
        await store.reached.wait()
        more = [asyncio.create_task(gate.identify(request(text))) for text in (*texts[500:], issued.text)]
        for _ in range(10):
            await asyncio.sleep(0)  # so that all have come as far as they can
        store.go_on.set()
        answers = await asyncio.gather(*first, *more, return_exceptions=True)
        assert {type(one) for one in answers[:-1]} == {Problem}
        known = answers[-1]
        assert not isinstance(known, BaseException)
        assert known.id == issued.key.id, "a key that the broker did not know yet is not held up by them"
        assert store.asked <= 3

    asyncio.run(story())


def test_keys_that_were_made_up_push_none_out_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        monkeypatch.setattr(gate_module, "_CACHED", 10)
        store = Held()
        store.go_on.set()
        issued = await AsyncApp(store).keys.create("k", ["read"])
        gate = Gate(store, BrokerSettings(keys_cached_for=timedelta(hours=1)))
        await gate.identify(request(issued.text))
        for n in range(20):
            with pytest.raises(Problem):
                await gate.identify(request(f"tarry_{n:012x}_{'0' * 64}"))
        asked = store.asked
        await gate.identify(request(issued.text))
        assert store.asked == asked

    asyncio.run(story())


class TestAWatchedKey:
    def test_is_looked_up_when_its_cached_answer_expires_and_not_a_full_period_later(self) -> None:
        async def story() -> None:
            store = Held()
            store.go_on.set()
            issued = await AsyncApp(store).keys.create("k", ["read"])
            gate = Gate(store, BrokerSettings(keys_cached_for=timedelta(hours=1)))
            caller = await gate.identify(request(issued.text))
            # As if another request had looked it up nearly an hour ago.
            gate._known[issued.key.id] = (time.monotonic() + 0.5, issued.key)
            await store.revoke_key(issued.key.id)
            with gate.watched(caller) as ended:
                assert await asyncio.wait({ended}, timeout=30) == ({ended}, set())

        asyncio.run(story())

    def test_stays_valid_when_a_look_up_fails_in_an_unexpected_way(self) -> None:
        class Broken(Held):
            broken = False

            def __init__(self) -> None:
                super().__init__()
                self.look_ups = asyncio.Semaphore(0)

            async def find_keys(self, ids: Sequence[str], *, conn: Any = None) -> list[ApiKey]:
                self.look_ups.release()
                found = await super().find_keys(ids)
                if self.broken:
                    raise RuntimeError("not an error of Tarry")
                return found

        async def asked_twice(store: Broken) -> None:
            async with asyncio.timeout(30):
                for _ in range(2):
                    await store.look_ups.acquire()

        async def story() -> None:
            store = Broken()
            store.go_on.set()
            issued = await AsyncApp(store).keys.create("k", ["read"])
            gate = Gate(store, BrokerSettings(keys_cached_for=timedelta(0)))
            caller = await gate.identify(request(issued.text))
            await store.look_ups.acquire()
            store.broken = True
            with gate.watched(caller) as ended:
                await asked_twice(store)
                assert not ended.done()
                store.broken = False
                await asked_twice(store)
                assert not ended.done()
                await store.revoke_key(issued.key.id)
                assert await asyncio.wait({ended}, timeout=30) == ({ended}, set())

        asyncio.run(story())
