"""One request costs the broker a bounded amount of work, memory and disk, whatever its client sends."""

from __future__ import annotations

import asyncio
import hashlib
import json
from base64 import b64decode
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

import httpx
import pytest
from fastapi.exceptions import RequestValidationError

from tarry.app import AsyncApp
from tarry.core.errors import StoreUnavailable, UnknownQueue
from tarry.core.events import JournalLevel
from tarry.core.settings import QueueSettings
from tarry.edges.http import problems, relay_moving
from tarry.edges.http.broker import broker_app
from tarry.edges.http.contracts import MOST_ERRORS
from tarry.edges.http.ids import MessageId
from tarry.edges.http.pages import LARGEST_SLICE, SLICE, SLICE_BYTES, bounded, slices
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

    def test_members_that_relay_ignores_hide_no_field(self, ask: Caller) -> None:
        junk = {f"{n:02d}{'x' * 96}": 1 for n in range(45)}
        body = {**junk, "messages": [{**junk, "id": "SECRETID"}], "fromQueue": "dead", "toQueue": "main"}
        assert ask("POST", "/api/queue/move", body).status_code == 200
        detail = ask("GET", "/v1/audit").json()["audit"][0]["detail"]
        assert json.loads(detail["body"]) == {"fromQueue": "dead", "toQueue": "main"}
        assert detail["ids"] == ["SECRETID"]

    @pytest.mark.parametrize(
        ("path", "field", "rest"),
        [
            ("/api/queue/messages/delete", "messageIds", {}),
            ("/api/queue/messages/delete?queueType=dead", "messageIds", {}),
            ("/api/queue/move", "messages", {"fromQueue": "main", "toQueue": "dead", "errorReason": "x" * 2_000}),
        ],
    )
    def test_every_message_of_a_large_batch_is_in_its_row(
        self, ask: Caller, path: str, field: str, rest: dict[str, str]
    ) -> None:
        ids = [str(MessageId("orders", f"{n:036d}")) for n in range(1_000)]
        assert ask("POST", path, {field: ids, **rest}).status_code == 200
        detail = ask("GET", "/v1/audit").json()["audit"][0]["detail"]
        assert detail["ids"] == ids
        assert json.loads(detail["body"]).keys() == rest.keys()

    def test_long_ids_hide_no_other_and_are_kept_by_their_hash(self, ask: Caller) -> None:
        ids = [*(str(MessageId("orders", f"{n:0500d}")) for n in range(998)), "\x00", str(MessageId("orders", "k"))]
        assert ask("POST", "/api/queue/messages/delete", {"messageIds": ids}).status_code == 200
        detail = ask("GET", "/v1/audit").json()["audit"][0]["detail"]
        assert len(detail["ids"]) == 1_000
        assert detail["ids"][-2:] == ["", ids[-1]]
        assert hashlib.sha256(ids[0].encode()).hexdigest() in detail["ids"][0]
        assert len(json.dumps(detail)) < 250_000

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

    def test_of_two_first_offers_at_once_to_the_last_queue_of_a_key_both_are_stored(
        self,
        guarded: Caller,
        key: Callable[..., str],
        behind: AsyncApp,
        http_loop: Loop,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        producer = guarded.with_key(key("produce"))
        for name in ("a", "b"):
            assert producer("POST", f"/v1/queues/{name}/messages", {"payload": 1}).status_code == 201
        offer, missed = behind.store.offer, asyncio.Barrier(2)

        async def missing_at_first(*args: Any, **options: Any) -> Any:
            try:
                return await offer(*args, **options)
            except UnknownQueue:
                await missed.wait()  # both have found that there is no such queue before one of them creates it
                raise

        monkeypatch.setattr(behind.store, "offer", missing_at_first)

        async def both() -> list[httpx.Response]:
            offers = (producer.answer("POST", "/v1/queues/last/messages", {"payload": n}) for n in range(2))
            return await asyncio.gather(*offers)

        assert [answer.status_code for answer in http_loop.run(both())] == [201, 201]

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


WRONG: list[tuple[str, Any]] = [
    ("/v1/queues/q/messages", {"payload": 1, **{f"{n:x}": 1 for n in range(50_000)}}),
    ("/v1/queues/q/messages", {"payload": 1, "headers": {f"{n:x}": 1 for n in range(50_000)}}),
    ("/v1/queues/q/messages", {"payload": 1, "headers": {f"{n:x}": 1 for n in range(8_000)}}),
    ("/v1/queues/q/messages:batch", {"messages": [dict.fromkeys("abcdefghijklmnopqr", 1)] * 1_000}),
    ("/v1/queues/q/messages:batch", {"messages": [1] * 400_000}),
    ("/v1/messages:ack", {"messages": [{"id": 1, "lock_token": 1, "a": 1}] * 1_000}),
    ("/v1/schedules:rule", {"rulings": [{"ticks": [0] * 9_000, "withdraw": [0] * 9_000}] * 20}),
    ("/v1/schedules:due", {"owned": [0] * 10_000}),
]


class TestErrors:
    """By number: FastAPI makes a dict of each error, on the event loop."""

    @pytest.mark.parametrize(("path", "body"), WRONG, ids=range(len(WRONG)))
    def test_no_body_has_a_long_list_of_errors(
        self, ask: Caller, monkeypatch: pytest.MonkeyPatch, path: str, body: Any
    ) -> None:
        built, of_validation = list[int](), problems.of_validation

        def counted(error: RequestValidationError) -> problems.Problem:
            built.append(len(error.errors()))
            return of_validation(error)

        monkeypatch.setattr(problems, "of_validation", counted)
        answer = ask("POST", path, body)
        assert code(answer) == (422, "invalid")
        assert built
        assert max(built) <= MOST_ERRORS

    def test_a_few_unknown_fields_are_named(self, ask: Caller) -> None:
        answer = ask("POST", "/v1/queues/q/messages", {"payload": 1, "a": 1, "b": 2})
        assert [one["field"] for one in answer.json()["errors"]] == ["a", "b"]


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

    @pytest.mark.parametrize("wait", [0, 5])
    def test_a_poll_leases_no_more_than_a_slice_beyond_the_bytes_of_a_page(self, small: Caller, wait: int) -> None:
        for n in range(100):
            small("POST", "/v1/queues/q/messages", {"key": f"k{n:02}", "payload": "x" * 600})
        keys = list[str]()
        for _ in range(4):
            answer = small("POST", "/v1/queues/q/messages:poll", {"max": 1_000, "wait": wait})
            leased = [one["key"] for one in answer.json()["messages"]]
            assert len(leased) <= SLICE
            keys += leased
        assert keys == [f"k{n:02}" for n in range(100)]

    def test_a_poll_of_small_messages_is_filled_slice_by_slice(self, ask: Caller) -> None:
        ask("POST", "/v1/queues/q/messages:batch", {"messages": [{"payload": n} for n in range(300)]})
        answer = ask("POST", "/v1/queues/q/messages:poll", {"max": 250}).json()
        assert [one["payload"] for one in answer["messages"]] == list(range(250))
        rest = ask("POST", "/v1/queues/q/messages:poll", {"max": 250}).json()
        assert len(rest["messages"]) == 50

    def test_a_poll_hands_over_what_it_leased_before_the_database_failed(
        self, ask: Caller, behind: AsyncApp, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ask("POST", "/v1/queues/q/messages:batch", {"messages": [{"payload": n} for n in range(100)]})
        lease, calls = behind.store.lease, 0

        async def failing(*args: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls > 1:
                raise StoreUnavailable("the database is away")
            return await lease(*args, **options)

        monkeypatch.setattr(behind.store, "lease", failing)
        answer = ask("POST", "/v1/queues/q/messages:poll", {"max": 100})
        assert (answer.status_code, len(answer.json()["messages"]), calls) == (200, SLICE, 2)

    def test_a_batch_of_relay_ends_early_when_its_payloads_are_large(self, small: Caller) -> None:
        for _ in range(50):
            small("POST", "/api/queue/message", {"type": "t", "payload": "x" * 600})
        counts = [small("GET", "/api/queue/messages/batch?count=100").json()["count"] for _ in range(3)]
        assert counts == [SLICE, 50 - SLICE, 0]

    def test_a_timeline_ends_early_when_its_payloads_are_large(self, small: Caller) -> None:
        small("POST", "/v1/queues", {"name": "q", "journal": "payloads"})
        id = MessageId("q", "k")
        for n in range(5):
            small("POST", "/v1/queues/q/messages", {"key": "k", "payload": f"{n}" * 600})
        whole, before = list[Any](), ""
        while before is not None:
            page = small("GET", f"/v1/messages/{id}/timeline{before and f'?before={before}'}").json()
            assert len(page["events"]) <= 2
            whole = page["events"] + whole
            before = page["next"]
        assert [b64decode(one["payload_base64"])[:1] for one in whole] == [b"0", b"1", b"2", b"3", b"4"]
        history = small("GET", f"/api/queue/activity/message/{id}").json()["history"]
        assert len(history) == 5  # without payloads

    def test_the_python_client_reads_a_whole_timeline(self, behind: AsyncApp, http_loop: Loop) -> None:
        async def story() -> None:
            await behind.queues.create("q", QueueSettings(journal=JournalLevel.PAYLOADS))
            for n in range(5):
                await behind.queue("q").offer("k", f"{n}" * 600)

        http_loop.run(story())
        settings = BrokerSettings(anonymous=True, page_bytes=1_000)
        with broker_on(behind, http_loop, settings) as url, Client(url) as client:
            events = client.store.timeline("q", "k")
            assert [(event.payload or b"")[:1] for event in events] == [b"0", b"1", b"2", b"3", b"4"]
            assert client.store.timeline("q", "k", limit=3) == events[-3:]

    def test_lists_of_relay_say_where_they_end_for_large_payloads(self, small: Caller) -> None:
        for _ in range(5):
            small("POST", "/api/queue/message", {"type": "t", "payload": "x" * 600})
        first = small("GET", "/api/queue/main/messages?limit=2").json()
        assert (len(first["messages"]), first["pagination"]["total"]) == (2, 5)
        beyond = small("GET", "/api/queue/main/messages?limit=2&page=2")
        assert code(beyond) == (422, "invalid")
        assert "pages end after 2 messages" in beyond.json()["detail"]
        assert len(small("GET", "/api/queue/main/export").json()) == 5

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

    def test_slices_grow_only_while_payloads_are_small(self, http_loop: Loop) -> None:
        sizes = [1, 1, 1, SLICE_BYTES, 1, 1]

        async def rows(place: int | None, n: int) -> list[Row]:
            return [Row(b"x" * (sizes[place or 0] // n), (place or 0) + 1)] * n

        async def walk() -> list[int]:
            found = list[int]()
            async for some in slices(rows, lambda row: row.n):
                found.append(len(some))
                if len(found) == len(sizes):
                    break
            return found

        assert http_loop.run(walk()) == [32, 64, 128, 128, 32, 64]

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
