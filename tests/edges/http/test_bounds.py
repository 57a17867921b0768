"""One request costs the broker a bounded amount of work, memory and disk, whatever its client sends."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

import httpx
import pytest

from tarry.app import AsyncApp
from tarry.edges.http import relay_moving
from tarry.edges.http.broker import broker_app
from tarry.edges.http.pages import LARGEST_SLICE, bounded
from tarry.edges.http.settings import BrokerSettings
from tarry.http import Client
from tests.edges.http.conftest import Caller
from tests.edges.http.test_answers import code
from tests.kit.blocking import Loop
from tests.kit.brokers import broker_on


def test_a_duration_that_is_too_long_to_parse_is_refused(ask: Caller) -> None:
    answer = ask("POST", "/v1/queues/q/messages", {"payload": 1, "delay": "P" + "1Y" * 1_000 + "!"})
    assert code(answer) == (422, "invalid")
    assert "64 characters" in answer.json()["detail"]


def test_other_requests_are_answered_while_blank_lines_are_imported(ask: Caller, http_loop: Loop) -> None:
    at_begin, at_end = asyncio.Event(), asyncio.Event()

    async def lines() -> AsyncIterator[bytes]:
        at_begin.set()
        yield b"\n" * 200_000
        at_end.set()

    async def both() -> httpx.Response:
        importing = asyncio.create_task(ask.answer("POST", "/v1/queues/q/import", content=lines()))
        await at_begin.wait()
        for _ in range(5):
            assert (await ask.answer("GET", "/healthz")).status_code == 200
        assert not at_end.is_set()
        return await importing

    assert json.loads(http_loop.run(both()).text.splitlines()[-1])["blank"] == 200_000


def test_other_requests_are_answered_while_a_file_of_relay_is_imported(ask: Caller, http_loop: Loop) -> None:
    body = json.dumps([{}] * relay_moving.IMPORTED_AT_ONCE).encode()

    async def both() -> httpx.Response:
        importing = asyncio.create_task(ask.answer("POST", "/api/queue/import", content=body))
        for _ in range(5):
            assert (await ask.answer("GET", "/healthz")).status_code == 200
            assert not importing.done()
        return await importing

    assert http_loop.run(both()).json()["count"] == relay_moving.IMPORTED_AT_ONCE


@pytest.mark.parametrize("item", [1, {}])
def test_a_file_of_relay_has_a_limited_number_of_messages(ask: Caller, item: Any) -> None:
    body = json.dumps([item] * (relay_moving.IMPORTED_AT_ONCE + 1)).encode()
    assert code(ask("POST", "/api/queue/import", content=body)) == (413, "too_large")


def test_an_import_has_a_limited_number_of_lines(behind: AsyncApp, http_loop: Loop) -> None:
    ask = Caller(broker_app(behind, BrokerSettings(anonymous=True, import_limit=600)), http_loop)
    answer = ask("POST", "/v1/queues/q/import", content=b'{"payload": 1}\n' * 601)
    assert code(answer) == (413, "too_large")
    assert answer.json()["stored_lines"] == 500
    assert ask("POST", "/v1/queues/q/import", content=b'{"payload": 1}\n' * 600).status_code == 200


class TestAudit:
    def test_white_space_hides_no_body(self, ask: Caller) -> None:
        body = b'{"name":' + b" " * 5_000 + b'"q", "journal": "off"}'
        assert ask("POST", "/v1/queues", content=body).status_code == 201
        detail = ask("GET", "/v1/audit").json()["audit"][0]["detail"]
        assert json.loads(detail["body"]) == {"name": "q", "journal": "off"}
        assert detail["body_bytes"] == len(body)
        assert detail["body_sha256"] == hashlib.sha256(body).hexdigest()

    def test_a_long_text_hides_no_field_behind_it(self, ask: Caller) -> None:
        body = json.dumps({"padding": "x" * 5_000, "name": "q"}).encode()
        assert ask("POST", "/v1/queues", content=body).status_code == 422
        detail = ask("GET", "/v1/audit").json()["audit"][0]["detail"]
        assert json.loads(detail["body"])["name"] == "q"
        assert len(detail["body"]) <= 4_096

    def test_a_body_that_is_not_json_is_kept_from_its_first_character(self, ask: Caller) -> None:
        assert code(ask("POST", "/v1/queues", content=b" " * 5_000 + b"{nonsense")) == (400, "not_json")
        assert ask("GET", "/v1/audit").json()["audit"][0]["detail"]["body"] == "{nonsense"


class TestNewQueues:
    @pytest.fixture
    def guarded(self, behind: AsyncApp, http_loop: Loop) -> Caller:
        return Caller(broker_app(behind, BrokerSettings(queues_per_key=3)), http_loop)

    def test_a_key_that_may_only_consume_creates_no_queue(self, guarded: Caller, key: Callable[..., str]) -> None:
        consumer = guarded.with_key(key("consume", "read"))
        answer = consumer("POST", "/v1/queues/new/messages:poll", {})
        assert code(answer) == (404, "unknown_queue")
        assert consumer("GET", "/v1/queues").json()["queues"] == []

    def test_a_key_that_may_also_produce_creates_the_queue_that_it_polls(
        self, guarded: Caller, key: Callable[..., str]
    ) -> None:
        both = guarded.with_key(key("consume", "produce", "read"))
        assert both("POST", "/v1/queues/new/messages:poll", {}).status_code == 204
        assert [one["name"] for one in both("GET", "/v1/queues").json()["queues"]] == ["new"]

    def test_a_key_creates_queues_until_so_many_fit_it(self, guarded: Caller, key: Callable[..., str]) -> None:
        mine, other, admin = (
            guarded.with_key(text)
            for text in (
                key("produce", queues=("mine-*",)),
                key("produce", queues=("other-*",)),
                key("produce", "admin", "read"),
            )
        )

        def offer(caller: Caller, queue: str) -> int:
            return caller("POST", f"/v1/queues/{queue}/messages", {"payload": 1}).status_code

        for n in range(3):
            assert offer(mine, f"mine-{n}") == 201
        assert offer(mine, "mine-3") == 409
        assert offer(mine, "mine-0") == 201, "into what there is, it goes on offering"
        assert offer(other, "other-0") == 201, "the quota of a key is no other's"
        assert offer(admin, "mine-4") == 201, "an administrator may create as many as there is need for"
        assert offer(mine, "mine-5") == 409
        assert {one["name"] for one in admin("GET", "/v1/queues").json()["queues"]} == {
            "mine-0", "mine-1", "mine-2", "mine-4", "other-0",
        }  # fmt: skip

    def test_offers_that_come_together_create_no_more(
        self, guarded: Caller, http_loop: Loop, key: Callable[..., str]
    ) -> None:
        producer = guarded.with_key(key("produce"))

        async def together() -> list[int]:
            offers = [producer.answer("POST", f"/v1/queues/q{n}/messages", {"payload": 1}) for n in range(10)]
            return sorted(answer.status_code for answer in await asyncio.gather(*offers))

        assert http_loop.run(together()) == [201] * 3 + [409] * 7

    def test_relays_default_queue_is_there_for_every_key(self, guarded: Caller, key: Callable[..., str]) -> None:
        consumer = guarded.with_key(key("consume"))
        assert consumer("GET", "/api/queue/message").status_code in (200, 204, 404)
        assert "unknown_queue" not in consumer("GET", "/api/queue/message").text


class TestPages:
    @pytest.fixture
    def small(self, behind: AsyncApp, http_loop: Loop) -> Caller:
        return Caller(broker_app(behind, BrokerSettings(anonymous=True, page_bytes=1_000)), http_loop)

    def test_a_page_of_messages_ends_early_when_its_payloads_are_large(self, small: Caller) -> None:
        for n in range(5):
            small("POST", "/v1/queues/q/messages", {"key": f"k{n}", "payload": "x" * 600})
        keys, after = list[str](), ""
        while after is not None:
            page = small("GET", f"/v1/queues/q/messages?limit=1000{after and '&after=' + after}").json()
            assert len(page["messages"]) <= 2
            keys += [one["key"] for one in page["messages"]]
            after = page["next"]
        assert keys == [f"k{n}" for n in range(5)]

    def test_a_page_of_dead_letters_ends_early_when_its_payloads_are_large(
        self, small: Caller, behind: AsyncApp, http_loop: Loop
    ) -> None:
        self.bury(behind, http_loop, 5)
        keys, after = list[str](), ""
        while after is not None:
            page = small("GET", f"/v1/queues/q/dead?limit=10000{after and '&after=' + after}").json()
            assert len(page["dead_letters"]) <= 2
            keys += [one["key"] for one in page["dead_letters"]]
            after = page["next"]
        assert keys == [f"k{n}" for n in reversed(range(5))]

    def test_no_more_is_read_for_a_page_than_a_slice_beyond_it(self, behind: AsyncApp, http_loop: Loop) -> None:
        """Rows that are left out cost memory, too."""
        read = 0

        async def rows(place: int | None, n: int) -> list[Row]:
            nonlocal read
            read += n
            return [Row(b"x" * 1_000, place or 0) for _ in range(n)]

        page = bounded(rows, lambda row: row.n, start=None, limit=10_000, most_bytes=100_000)
        found, _ = http_loop.run(page)
        assert len(found) == 100
        assert read <= len(found) + LARGEST_SLICE

    def test_the_python_client_follows(self, behind: AsyncApp, http_loop: Loop) -> None:
        self.bury(behind, http_loop, 5)
        names = [f"q{n:03}" for n in range(205)]

        async def create() -> None:
            for name in names:
                await behind.queues.create(name)

        http_loop.run(create())
        with (
            broker_on(behind, http_loop, BrokerSettings(anonymous=True, page_bytes=1_000)) as url,
            Client(url) as client,
        ):
            assert [info.name for info in client.queues.list()] == ["q", *names]
            letters = client.queue("q").dead_letters
            assert [one.key for one in letters.list(limit=10)] == [f"k{n}" for n in reversed(range(5))]
            assert [one.key for one in letters.list(limit=3)] == ["k4", "k3", "k2"]

    def test_queues_are_listed_page_by_page(self, ask: Caller) -> None:
        for name in "abcde":
            ask("POST", "/v1/queues", {"name": name})
        first = ask("GET", "/v1/queues?limit=3").json()
        assert ([one["name"] for one in first["queues"]], first["next"]) == (["a", "b", "c"], "c")
        last = ask("GET", f"/v1/queues?limit=3&after={first['next']}").json()
        assert ([one["name"] for one in last["queues"]], last["next"]) == (["d", "e"], None)
        assert code(ask("GET", "/v1/queues?limit=0")) == (422, "invalid")
        assert code(ask("GET", "/v1/queues?after=%00")) == (422, "invalid")

    def bury(self, behind: AsyncApp, loop: Loop, n: int) -> None:
        async def story() -> None:
            await behind.queues.create("q")
            queue = behind.queue("q")
            for number in range(n):
                await queue.offer(f"k{number}", "x" * 600)
                delivery = await queue.try_poll()
                assert delivery is not None
                await delivery.bury("hopeless")

        loop.run(story())


class Row(NamedTuple):
    payload: bytes
    n: int
