"""One request costs the broker a bounded amount of work, memory and disk, whatever its client sends."""

from __future__ import annotations

import asyncio
import hashlib
import json
from base64 import b64decode
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any, NamedTuple

import httpx
import pytest
from fastapi.exceptions import RequestValidationError

from tarry.app import AsyncApp
from tarry.core.errors import StoreUnavailable, UnknownQueue
from tarry.core.journal.events import JournalLevel
from tarry.core.settings import QueueSettings
from tarry.edges.http import problems
from tarry.edges.http.app import broker_app
from tarry.edges.http.pages import LARGEST_SLICE, SLICE, SLICE_BYTES, bounded, slices
from tarry.edges.http.relay import edit
from tarry.edges.http.settings import BrokerSettings
from tarry.http import Client
from tarry.testing import MutableClock
from tarry.wire.ids import MessageId
from tarry.wire.openapi import MOST_ERRORS
from tests.edges.http.conftest import Caller
from tests.edges.http.test_responses import code
from tests.kit.blocking import Loop
from tests.kit.brokers import broker_on
from tests.kit.calls import call_of, replace_call


def test_a_duration_that_is_too_long_to_parse_is_refused(call: Caller) -> None:
    response = call("POST", "/v1/queues/q/messages", {"payload": 1, "after": "P" + "1Y" * 1_000 + "!"})
    assert code(response) == (422, "invalid")
    assert "64 characters" in response.json()["detail"]


def test_other_requests_are_served_while_blank_lines_are_imported(call: Caller, http_loop: Loop) -> None:
    at_begin, at_end = asyncio.Event(), asyncio.Event()

    async def lines() -> AsyncIterator[bytes]:
        at_begin.set()
        yield b"\n" * 200_000
        at_end.set()

    async def both() -> httpx.Response:
        importing = asyncio.create_task(call.request("POST", "/v1/queues/q/import", content=lines()))
        await at_begin.wait()
        for _ in range(5):
            assert (await call.request("GET", "/healthz")).status_code == 200
        assert not at_end.is_set()
        return await importing

    assert json.loads(http_loop.run(both()).text.splitlines()[-1])["blank"] == 200_000


def test_other_requests_are_served_while_a_file_of_relay_is_imported(call: Caller, http_loop: Loop) -> None:
    body = json.dumps([{}] * edit.IMPORT_LIMIT).encode()

    async def both() -> httpx.Response:
        importing = asyncio.create_task(call.request("POST", "/api/queue/import", content=body))
        for _ in range(5):
            assert (await call.request("GET", "/healthz")).status_code == 200
            assert not importing.done()
        return await importing

    assert http_loop.run(both()).json()["count"] == edit.IMPORT_LIMIT


@pytest.mark.parametrize("item", [1, {}])
def test_a_file_of_relay_has_a_limited_number_of_messages(call: Caller, item: Any) -> None:
    body = json.dumps([item] * (edit.IMPORT_LIMIT + 1)).encode()
    assert code(call("POST", "/api/queue/import", content=body)) == (413, "too_large")


def test_an_import_has_a_limited_number_of_lines(behind: AsyncApp, http_loop: Loop) -> None:
    call = Caller(broker_app(behind, BrokerSettings(anonymous=True, import_limit=600)), http_loop)
    response = call("POST", "/v1/queues/q/import", content=b'{"payload": 1}\n' * 601)
    assert code(response) == (413, "too_large")
    assert response.json()["stored_lines"] == 500
    assert call("POST", "/v1/queues/q/import", content=b'{"payload": 1}\n' * 600).status_code == 200


class TestAudit:
    def test_white_space_hides_no_body(self, call: Caller) -> None:
        body = b'{"name":' + b" " * 5_000 + b'"q", "journal": "off"}'
        assert call("POST", "/v1/queues", content=body).status_code == 201
        detail = call("GET", "/v1/audit").json()["audit"][0]["detail"]
        assert json.loads(detail["body"]) == {"name": "q", "journal": "off"}
        assert detail["body_bytes"] == len(body)
        assert detail["body_sha256"] == hashlib.sha256(body).hexdigest()

    def test_a_long_text_hides_no_field_behind_it(self, call: Caller) -> None:
        body = json.dumps({"padding": "x" * 5_000, "name": "q"}).encode()
        assert call("POST", "/v1/queues", content=body).status_code == 422
        detail = call("GET", "/v1/audit").json()["audit"][0]["detail"]
        assert json.loads(detail["body"])["name"] == "q"
        assert len(detail["body"]) <= 4_096

    def test_members_that_relay_ignores_hide_no_field(self, call: Caller) -> None:
        junk = {f"{n:02d}{'x' * 96}": 1 for n in range(45)}
        body = {**junk, "messages": [{**junk, "id": "SECRETID"}], "fromQueue": "dead", "toQueue": "main"}
        assert call("POST", "/api/queue/move", body).status_code == 200
        detail = call("GET", "/v1/audit").json()["audit"][0]["detail"]
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
        self, call: Caller, path: str, field: str, rest: dict[str, str]
    ) -> None:
        ids = [str(MessageId("orders", f"{n:036d}")) for n in range(1_000)]
        assert call("POST", path, {field: ids, **rest}).status_code == 200
        detail = call("GET", "/v1/audit").json()["audit"][0]["detail"]
        assert detail["ids"] == ids
        assert json.loads(detail["body"]).keys() == rest.keys()

    def test_long_ids_hide_no_other_and_are_kept_by_their_hash(self, call: Caller) -> None:
        ids = [*(str(MessageId("orders", f"{n:0500d}")) for n in range(998)), "\x00", str(MessageId("orders", "k"))]
        assert call("POST", "/api/queue/messages/delete", {"messageIds": ids}).status_code == 200
        detail = call("GET", "/v1/audit").json()["audit"][0]["detail"]
        assert len(detail["ids"]) == 1_000
        assert detail["ids"][-2:] == ["", ids[-1]]
        assert hashlib.sha256(ids[0].encode()).hexdigest() in detail["ids"][0]
        assert len(json.dumps(detail)) < 250_000

    def test_a_list_ends_early_when_its_rows_are_large(self, behind: AsyncApp, http_loop: Loop) -> None:
        call = Caller(broker_app(behind, BrokerSettings(anonymous=True, page_bytes=100_000)), http_loop)
        ids = [str(MessageId("orders", f"{n:036d}")) for n in range(500)]
        for _ in range(5):
            assert call("POST", "/api/queue/messages/delete", {"messageIds": ids}).status_code == 200
        response = call("GET", "/v1/audit")
        page, sizes = response.json(), [len(json.dumps(row)) for row in response.json()["audit"]]
        assert 1 <= len(sizes) < 5
        assert sum(sizes[:-1]) < 100_000 <= sum(sizes)
        assert call("GET", "/v1/audit?limit=1").json()["audit"] == page["audit"][:1]
        rest = call("GET", f"/v1/audit?before={page['next']}").json()
        assert len({row["id"] for row in (*page["audit"], *rest["audit"])}) == 5
        assert rest["next"] is None

    def test_a_list_of_small_rows_has_as_many_as_requested(self, call: Caller) -> None:
        for n in range(100):
            call("POST", "/v1/queues", {"name": f"q{n}"})
        names = [row["detail"]["body"] for row in call("GET", "/v1/audit?limit=90").json()["audit"]]
        assert names == [json.dumps({"name": f"q{n}"}, separators=(",", ":")) for n in reversed(range(10, 100))]

    def test_a_body_that_is_not_json_is_kept_from_its_first_character(self, call: Caller) -> None:
        assert code(call("POST", "/v1/queues", content=b" " * 5_000 + b"{nonsense")) == (400, "not_json")
        assert call("GET", "/v1/audit").json()["audit"][0]["detail"]["body"] == "{nonsense"


class TestNewQueues:
    @pytest.fixture
    def guarded(self, behind: AsyncApp, http_loop: Loop) -> Caller:
        return Caller(broker_app(behind, BrokerSettings(queues_per_key=3)), http_loop)

    def test_a_key_that_may_only_consume_creates_no_queue(self, guarded: Caller, key: Callable[..., str]) -> None:
        consumer = guarded.with_key(key("consume", "read"))
        response = consumer("POST", "/v1/queues/new/messages:poll", {})
        assert code(response) == (404, "unknown_queue")
        assert consumer("GET", "/v1/queues").json()["queues"] == []

    def test_a_key_that_may_also_produce_creates_the_queue_that_it_polls(
        self, guarded: Caller, key: Callable[..., str]
    ) -> None:
        both = guarded.with_key(key("consume", "produce", "read"))
        assert both("POST", "/v1/queues/new/messages:poll", {}).status_code == 204
        assert [queue["name"] for queue in both("GET", "/v1/queues").json()["queues"]] == ["new"]

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
        offer, missed = call_of(behind.store, "messages.offer"), asyncio.Barrier(2)

        async def missing_at_first(*args: Any, **options: Any) -> Any:
            try:
                return await offer(*args, **options)
            except UnknownQueue:
                await missed.wait()  # both have found that there is no such queue before one of them creates it
                raise

        replace_call(behind.store, "messages.offer", missing_at_first)

        async def both() -> list[httpx.Response]:
            offers = (producer.request("POST", "/v1/queues/last/messages", {"payload": n}) for n in range(2))
            return await asyncio.gather(*offers)

        assert [response.status_code for response in http_loop.run(both())] == [201, 201]

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
        assert {item["name"] for item in admin("GET", "/v1/queues").json()["queues"]} == {
            "mine-0", "mine-1", "mine-2", "mine-4", "other-0",
        }  # fmt: skip

    def test_offers_that_come_together_create_no_more(
        self, guarded: Caller, http_loop: Loop, key: Callable[..., str]
    ) -> None:
        producer = guarded.with_key(key("produce"))

        async def together() -> list[int]:
            offers = [producer.request("POST", f"/v1/queues/q{n}/messages", {"payload": 1}) for n in range(10)]
            return sorted(response.status_code for response in await asyncio.gather(*offers))

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
    ("/v1/messages:ack", {"messages": [{"id": 1, "token": 1, "a": 1}] * 1_000}),
    ("/v1/schedules:apply_changes", {"changes": [{"ticks": [0] * 9_000, "withdraw": [0] * 9_000}] * 20}),
    ("/v1/schedules:due", {"owned": [0] * 10_000}),
]


class TestErrors:
    """By number: FastAPI makes a dict of each error, on the event loop."""

    @pytest.mark.parametrize(("path", "body"), WRONG, ids=range(len(WRONG)))
    def test_no_body_has_a_long_list_of_errors(
        self, call: Caller, monkeypatch: pytest.MonkeyPatch, path: str, body: Any
    ) -> None:
        built, of_validation = list[int](), problems.of_validation

        def counted(error: RequestValidationError) -> problems.Problem:
            built.append(len(error.errors()))
            return of_validation(error)

        monkeypatch.setattr(problems, "of_validation", counted)
        response = call("POST", path, body)
        assert code(response) == (422, "invalid")
        assert built
        assert max(built) <= MOST_ERRORS

    def test_a_few_unknown_fields_are_named(self, call: Caller) -> None:
        response = call("POST", "/v1/queues/q/messages", {"payload": 1, "a": 1, "b": 2})
        assert [error["field"] for error in response.json()["errors"]] == ["a", "b"]


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
            keys += [message["key"] for message in page["messages"]]
            after = page["next"]
        assert keys == [f"k{n}" for n in range(5)]

    def test_relay_s_list_is_sorted_by_payload_though_not_all_are_kept(self, small: Caller) -> None:
        for n in range(5):
            small("POST", "/v1/queues/q/messages", {"key": f"k{n}", "payload": "x" * 600})
        response = small("GET", "/api/queue/main/messages?queueName=q&sortBy=payload")
        assert response.status_code == 200
        assert len(response.json()["messages"]) == 5

    def test_a_page_of_dead_letters_ends_early_when_its_payloads_are_large(
        self, small: Caller, behind: AsyncApp, http_loop: Loop
    ) -> None:
        self.bury(behind, http_loop, 5)
        keys, after = list[str](), ""
        while after is not None:
            page = small("GET", f"/v1/queues/q/dead?limit=10000{after and '&after=' + after}").json()
            assert len(page["dead_letters"]) <= 2
            keys += [letter["key"] for letter in page["dead_letters"]]
            after = page["next"]
        assert keys == [f"k{n}" for n in reversed(range(5))]

    @pytest.mark.parametrize("wait", [0, 5])
    def test_a_poll_leases_no_more_than_a_slice_beyond_the_bytes_of_a_page(self, small: Caller, wait: int) -> None:
        for n in range(100):
            small("POST", "/v1/queues/q/messages", {"key": f"k{n:02}", "payload": "x" * 600})
        keys = list[str]()
        for _ in range(4):
            response = small("POST", "/v1/queues/q/messages:poll", {"max": 1_000, "wait": wait})
            leased = [message["key"] for message in response.json()["messages"]]
            assert len(leased) <= SLICE
            keys += leased
        assert keys == [f"k{n:02}" for n in range(100)]

    def test_a_poll_of_small_messages_is_filled_slice_by_slice(self, call: Caller) -> None:
        call("POST", "/v1/queues/q/messages:batch", {"messages": [{"payload": n} for n in range(300)]})
        body = call("POST", "/v1/queues/q/messages:poll", {"max": 250}).json()
        assert [message["payload"] for message in body["messages"]] == list(range(250))
        rest = call("POST", "/v1/queues/q/messages:poll", {"max": 250}).json()
        assert len(rest["messages"]) == 50

    def test_a_poll_hands_over_what_it_leased_before_the_database_failed(
        self, call: Caller, behind: AsyncApp, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        call("POST", "/v1/queues/q/messages:batch", {"messages": [{"payload": n} for n in range(100)]})
        lease, calls = call_of(behind.store, "messages.poll"), 0

        async def failing(*args: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls > 1:
                raise StoreUnavailable("the database is away")
            return await lease(*args, **options)

        replace_call(behind.store, "messages.poll", failing)
        response = call("POST", "/v1/queues/q/messages:poll", {"max": 100})
        assert (response.status_code, len(response.json()["messages"]), calls) == (200, SLICE, 2)

    def test_a_batch_of_relay_ends_early_when_its_payloads_are_large(self, small: Caller) -> None:
        for _ in range(50):
            small("POST", "/api/queue/message", {"type": "t", "payload": "x" * 600})
        counts = [small("GET", "/api/queue/messages/batch?count=100").json()["count"] for _ in range(3)]
        assert counts == [SLICE, 50 - SLICE, 0]

    def test_an_export_reads_few_large_messages_at_a_time(
        self, call: Caller, behind: AsyncApp, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        payload = "x" * (2 * SLICE_BYTES // SLICE)
        for _ in range(4):
            call("POST", "/v1/queues/q/messages:batch", {"messages": [{"payload": payload}] * 25})
        listed, sizes = call_of(behind.store, "messages.list"), list[int]()

        async def measured(*args: Any, **options: Any) -> Any:
            rows = await listed(*args, **options)
            sizes.append(sum(len(row.payload) for row in rows))
            return rows

        replace_call(behind.store, "messages.list", measured)
        assert len(call("GET", "/v1/queues/q/export").text.splitlines()) == 100
        assert max(sizes) <= SLICE * (len(payload) + 2)

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
        assert [b64decode(entry["payload_base64"])[:1] for entry in whole] == [b"0", b"1", b"2", b"3", b"4"]
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
            events = client.store.run(client.store.journal.timeline("q", "k"))
            assert [(event.payload or b"")[:1] for event in events] == [b"0", b"1", b"2", b"3", b"4"]
            assert client.store.run(client.store.journal.timeline("q", "k", limit=3)) == events[-3:]

    @pytest.mark.parametrize("state", ["main", "processing", "dead"])
    def test_lists_of_relay_are_in_order_and_omit_payloads_beyond_the_limit(
        self, small: Caller, pinned: MutableClock, state: str
    ) -> None:
        for n in range(5):
            small("POST", "/api/queue/message", {"type": str(n), "payload": f"{n}" * 600, "maxAttempts": 1})
            pinned.advance(timedelta(seconds=1))
            held = small("GET", "/api/queue/message?ackTimeout=60").json() if state != "main" else {}
            if state == "dead":
                small("POST", f"/api/queue/message/{held['id']}/nack", {"lock_token": held["lock_token"]})
        listed = list[dict[str, Any]]()
        for page in (1, 2, 3):
            body = small("GET", f"/api/queue/{state}/messages?limit=2&page={page}").json()
            assert body["pagination"]["total"] == 5
            listed += body["messages"]
        assert [message["type"] for message in listed] == ["4", "3", "2", "1", "0"]
        assert [(message["payload"] or "")[:1] for message in listed] == ["4", "", "2", "", "0"]
        assert [message.get("payload_omitted", False) for message in listed] == [False, True, False, True, False]
        query = "startTimestamp=2024-01-01T00:00:00Z&endTimestamp=2024-01-02T00:00:00Z&limit=3"
        newest = small("GET", f"/api/queue/messages?{query}").json()
        assert [message["type"] for message in newest] == ["4", "3", "2"]
        assert len(small("GET", f"/api/queue/{state}/export").json()) == 5

    def test_a_list_of_relay_reads_payloads_up_to_the_limit(self, small: Caller, behind: AsyncApp) -> None:
        small("POST", "/api/queues", {"name": "q"})
        for n in range(3 * SLICE):
            small("POST", "/api/queue/message", {"type": "t", "payload": f"{n:03}" * 20, "queue": "q"})
        listed, sizes = call_of(behind.store, "messages.list"), list[int]()

        async def measured(*args: Any, **options: Any) -> Any:
            rows = await listed(*args, **options)
            sizes.append(sum(len(row.payload) for row in rows))
            return rows

        replace_call(behind.store, "messages.list", measured)
        page = small("GET", "/api/queue/main/messages?sortOrder=asc&page=3&limit=30").json()["messages"]
        assert [message["payload"] for message in page[:3]] == ["060" * 20, "061" * 20, "062" * 20]
        assert sizes == [SLICE * 60, *[0] * (len(sizes) - 1)]
        search = small("GET", "/api/queue/main/messages?search=095095").json()["messages"]
        assert [message["payload"] for message in search] == ["095" * 20]

    def test_no_more_is_read_for_a_page_than_a_slice_beyond_it(self, behind: AsyncApp, http_loop: Loop) -> None:
        """Rows that are left out cost memory, too."""
        read = 0

        async def rows(position: int | None, n: int) -> list[Row]:
            nonlocal read
            read += n
            return [Row(b"x" * 1_000, position or 0) for _ in range(n)]

        page = bounded(rows, lambda row: row.n, start=None, limit=10_000, most_bytes=100_000)
        page_rows, _ = http_loop.run(page)
        assert len(page_rows) == 100
        assert read <= len(page_rows) + LARGEST_SLICE

    def test_slices_grow_only_while_payloads_are_small(self, http_loop: Loop) -> None:
        sizes = [1, 1, 1, SLICE_BYTES, 1, 1]

        async def rows(position: int | None, n: int) -> list[Row]:
            return [Row(b"x" * (sizes[position or 0] // n), (position or 0) + 1)] * n

        async def walk() -> list[int]:
            sizes_read = list[int]()
            async for some in slices(rows, lambda row: row.n):
                sizes_read.append(len(some))
                if len(sizes_read) == len(sizes):
                    break
            return sizes_read

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
            assert [letter.key for letter in letters.list(limit=10)] == [f"k{n}" for n in reversed(range(5))]
            assert [letter.key for letter in letters.list(limit=3)] == ["k4", "k3", "k2"]

    def test_queues_are_listed_page_by_page(self, call: Caller) -> None:
        for name in "abcde":
            call("POST", "/v1/queues", {"name": name})
        first = call("GET", "/v1/queues?limit=3").json()
        assert ([queue["name"] for queue in first["queues"]], first["next"]) == (["a", "b", "c"], "c")
        last = call("GET", f"/v1/queues?limit=3&after={first['next']}").json()
        assert ([queue["name"] for queue in last["queues"]], last["next"]) == (["d", "e"], None)
        assert code(call("GET", "/v1/queues?limit=0")) == (422, "invalid")
        assert code(call("GET", "/v1/queues?after=%00")) == (422, "invalid")

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
