"""A queue as a stream of lines: out in pages, in by batches, the same on the other side."""

from __future__ import annotations

import asyncio
import json
import socket
from datetime import timedelta
from typing import Any

import httpx
import pytest

from tarry import Retry
from tarry.api import transfer
from tarry.app import AsyncApp
from tarry.core.errors import StoreUnavailable
from tarry.core.messages.model import Draft, Filter, StoredMessage
from tarry.core.settings import QueueSettings
from tarry.edges.http import pages
from tarry.edges.http.app import broker_app
from tarry.edges.http.settings import BrokerSettings
from tests.edges.http.conftest import Caller
from tests.edges.http.test_responses import code, offered, polled
from tests.kit.blocking import Loop
from tests.kit.brokers import broker_on
from tests.kit.calls import call_of, replace_call
from tests.kit.clocks import START
from tests.kit.sleepers import until

LINES = {"content-type": "application/x-ndjson"}
HOUR = timedelta(hours=1)


def imported(call: Caller, body: bytes, query: str = "") -> list[dict[str, Any]]:
    response = call("POST", f"/v1/queues/q/import{query}", content=body, headers=LINES)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in response.text.splitlines()]


def exported(call: Caller, queue: str = "q") -> bytes:
    response = call("GET", f"/v1/queues/{queue}/export")
    assert response.status_code == 200, response.text
    return response.content


def lines(*items: Any) -> bytes:
    return b"".join(json.dumps(item).encode() + b"\n" for item in items)


def everything(app: AsyncApp, loop: Loop, queue: str) -> list[Any]:
    """Every field that an offer can set, in due order."""
    messages: list[StoredMessage[bytes]] = loop.run(app.store.run(app.store.messages.list(queue, limit=10_000)))
    return [
        (m.key, m.payload, m.content_type, m.due_at, m.priority, m.type, m.headers, m.own_max_attempts, m.lease_for, m.retry)
        for m in messages
    ]  # fmt: skip


PAYLOADS: list[tuple[bytes, str | None]] = [
    (b'{"a":[1,2.5,null,"\xc3\xa4"]}', None),
    (b'"a JSON string"', None),
    (b'{ "spaces" : 1,\n"lines": 2 }', None),
    (b'{"b":1,"a":2}', None),
    (b'{"twice":1,"twice":2}', None),
    (b"123456789012345678901234567890", None),
    (b"1.0", None),
    (b"not json at all", None),
    (b"null", None),
    ("täxt\n".encode(), "text/plain"),
    (b"\xff\xfe", "text/plain"),
    (b"\x00\xff", "application/octet-stream"),
    (b"<x/>", "application/xml"),
    (b"", "application/octet-stream"),
]


class TestRoundTrip:
    def test_what_comes_out_goes_in_the_same(self, call: Caller, behind: AsyncApp, http_loop: Loop) -> None:
        http_loop.run(behind.queues.create("q", QueueSettings(max_attempts=7)))
        drafts = [
            Draft(f"key {i}/%", data, content_type, due_at=START + i * HOUR, priority=i % 10)
            for i, (data, content_type) in enumerate(PAYLOADS)
        ]
        retry = Retry.exponential(timedelta(seconds=3), factor=3.0)
        lease_for = timedelta(seconds=90)
        drafts.append(Draft("all", b"1", None, START, timedelta(0), 3, "type", {"h": "v"}, lease_for, 5, retry))
        http_loop.run(behind.store.run(behind.store.messages.offer_many("q", drafts)))
        before = everything(behind, http_loop, "q")
        body = exported(call)
        response = call("POST", "/v1/queues/copy/import", content=body, headers=LINES)
        assert json.loads(response.text.splitlines()[-1])["created"] == len(drafts)
        assert everything(behind, http_loop, "copy") == before
        assert exported(call, "copy") == body
        assert imported(call, body)[-1]["ignored"] == len(drafts)

    def test_a_message_that_is_held_is_exported_and_stays_held(self, call: Caller) -> None:
        offered(call, "q", key="a")
        token = polled(call, "q")
        assert json.loads(exported(call))["key"] == "a"
        settled = call("POST", f"/v1/messages/{token['id']}/ack", {"token": token["token"]})
        assert settled.status_code == 200

    def test_an_empty_queue_is_no_lines(self, call: Caller) -> None:
        call("POST", "/v1/queues", {"name": "q"})
        assert exported(call) == b""
        assert code(call("GET", "/v1/queues/nowhere/export")) == (404, "unknown_queue")


class TestExport:
    def test_it_is_read_page_by_page(self, call: Caller, behind: AsyncApp, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pages, "SLICE", 3)
        monkeypatch.setattr(pages, "LARGEST_SLICE", 3)
        imported(
            call, lines(*({"key": f"{i:02}", "payload": i, "after": i // 4, "priority": i % 3} for i in range(10)))
        )
        filters: list[Filter] = []
        messages = call_of(behind.store, "messages.list")

        async def watched(queue: str, **options: Any) -> Any:
            filters.append(options["filter"])
            return await messages(queue, **options)

        replace_call(behind.store, "messages.list", watched)
        assert [json.loads(line)["key"] for line in exported(call).splitlines()] == [f"{i:02}" for i in range(10)]
        assert len(filters) == 4
        assert filters[0].after is None

    def test_one_that_breaks_off_has_no_proper_end(
        self, broker_url: str, behind: AsyncApp, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pages, "SLICE", 2)
        body = lines(*({"payload": i} for i in range(4)))
        assert httpx.post(f"{broker_url}/v1/queues/q/import", content=body, headers=LINES).status_code == 200
        messages, successes = call_of(behind.store, "messages.list"), iter((True, False))

        async def breaking(queue: str, **options: Any) -> Any:
            if not next(successes):
                raise StoreUnavailable("away")
            return await messages(queue, **options)

        replace_call(behind.store, "messages.list", breaking)
        with (
            pytest.raises(httpx.RemoteProtocolError),
            httpx.stream("GET", f"{broker_url}/v1/queues/q/export") as response,
        ):
            response.read()


class TestImport:
    def test_a_bad_line_is_reported_by_its_number_and_the_others_are_stored(self, call: Caller) -> None:
        body = (
            lines({"key": "a", "payload": 1})
            + b"{not json\n"
            + lines({"key": "b", "payload": 1, "priority": 11}, {"key": "c", "payload": 1, "more": 1})
            + b"\n"
            + lines({"key": "d\x00", "payload": 1}, {"payload": "x" * 300_000}, [1], {"key": "a", "payload": 2})
        )
        *each, sums = imported(call, body)
        assert [(line["line"], line["outcome"]) for line in each] == [
            (1, "superseded"),
            (2, "refused"),
            (3, "refused"),
            (4, "refused"),
            (5, "blank"),
            (6, "refused"),
            (7, "refused"),
            (8, "refused"),
            (9, "created"),
        ]
        assert (sums["lines"], sums["created"], sums["refused"], sums["superseded"]) == (9, 1, 6, 1)
        problems = {line["line"]: line["problem"] for line in each if "problem" in line}
        assert problems[2].startswith("not JSON")
        assert problems[3] == "priority: Expected `int` <= 9"
        assert problems[4] == "more: this field is not known"
        assert "NUL" in problems[6]

    def test_stop_stores_nothing_of_the_batch_with_the_bad_line(
        self, call: Caller, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(transfer, "BATCH", 2)
        body = lines(*({"key": key, "payload": 1} for key in "abc")) + b"bad\n" + lines({"key": "d", "payload": 1})
        *each, sums = imported(call, body, "?on_bad=stop")
        assert [line["outcome"] for line in each] == ["created", "created", "not_stored", "refused"]
        assert (sums["lines"], sums["not_stored"]) == (4, 1)
        assert [m["key"] for m in call("GET", "/v1/queues/q/messages").json()["messages"]] == ["a", "b"]

    def test_a_dry_run_stores_nothing(self, call: Caller) -> None:
        *each, sums = imported(call, lines({"payload": 1}) + b"bad\n", "?dry_run=true")
        assert [line["outcome"] for line in each] == ["fine", "refused"]
        assert sums["fine"] == 1
        assert call("GET", "/v1/queues").json()["queues"] == []

    def test_batches_are_bounded_by_number_and_by_bytes(
        self, call: Caller, behind: AsyncApp, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sizes: list[int] = []
        offer_many = call_of(behind.store, "messages.offer_many")

        async def watched(queue: str, drafts: Any, **options: Any) -> Any:
            outcomes = await offer_many(queue, drafts, **options)
            sizes.append(len(drafts))
            return outcomes

        replace_call(behind.store, "messages.offer_many", watched)
        imported(call, lines(*({"payload": i} for i in range(1_201))))
        assert sizes == [500, 500, 201]
        sizes.clear()
        imported(call, lines(*({"payload": "x" * 200_000} for _ in range(12))))
        assert sizes == [6, 6]

    def test_it_may_be_larger_than_any_other_request_and_end_without_a_line_end(self, call: Caller) -> None:
        body = lines(*({"key": str(i), "payload": "x" * 1_000} for i in range(3_000)))
        assert len(body) > BrokerSettings().body_limit

        async def chunks() -> Any:
            for start in range(0, len(body) - 1, 10_007):
                yield body[start : min(start + 10_007, len(body) - 1)]

        response = call("POST", "/v1/queues/q/import", content=chunks(), headers=LINES)
        assert json.loads(response.text.splitlines()[-1])["created"] == 3_000
        announced = call("POST", "/v1/queues/q/import", content=body, headers=LINES)
        assert json.loads(announced.text.splitlines()[-1])["ignored"] == 3_000

    def test_a_line_without_end_is_one_bad_line_and_is_not_kept(self, call: Caller) -> None:
        async def endless() -> Any:
            for _ in range(40):
                yield b"x" * 100_000
            yield b"\n" + lines({"key": "a", "payload": 1})

        response = call("POST", "/v1/queues/q/import", content=endless(), headers=LINES)
        first, second, sums = (json.loads(line) for line in response.text.splitlines())
        assert (first["outcome"], first["problem"]) == ("refused", "a line has at most 1,048,576 bytes")
        assert (second["outcome"], sums["lines"]) == ("created", 2)

    def test_an_import_that_loses_the_database_reports_its_progress(
        self, call: Caller, behind: AsyncApp, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(transfer, "BATCH", 2)
        imported(call, lines({"payload": 1}))
        offer_many, successes = call_of(behind.store, "messages.offer_many"), iter((True, False))

        async def breaking(queue: str, drafts: Any) -> Any:
            if not next(successes):
                raise StoreUnavailable("away")
            return await offer_many(queue, drafts)

        replace_call(behind.store, "messages.offer_many", breaking)
        body = lines(*({"payload": i} for i in range(6)))
        response = call("POST", "/v1/queues/q/import", content=body, headers=LINES)
        assert code(response) == (503, "unavailable")
        assert response.json()["stored_lines"] == 2

    def test_what_is_not_lines_is_not_taken(self, call: Caller) -> None:
        response = call("POST", "/v1/queues/q/import", content=b"<x/>", headers={"content-type": "application/xml"})
        assert code(response) == (415, "not_json")
        assert code(call("POST", "/v1/queues/a%20b/import", content=b"", headers=LINES))[0] == 422
        assert imported(call, b"") == [
            {
                "lines": 0,
                "created": 0,
                "updated": 0,
                "ignored": 0,
                "superseded": 0,
                "refused": 0,
                "not_stored": 0,
                "blank": 0,
            }
        ]


@pytest.fixture
def slow(behind: AsyncApp, http_loop: Loop) -> Caller:
    settings = BrokerSettings(anonymous=True, body_for=timedelta(milliseconds=50))
    return Caller(broker_app(behind, settings), http_loop)


def test_a_client_that_stops_sending_is_cut_off(slow: Caller) -> None:
    async def stuck() -> Any:
        yield lines({"payload": 1})
        await asyncio.Event().wait()

    assert code(slow("POST", "/v1/queues/q/import", content=stuck(), headers=LINES)) == (408, "too_slow")


def test_a_client_that_leaves_in_the_middle_has_stored_whole_batches_and_leaves_no_traceback(
    broker_url: str,
    behind: AsyncApp,
    http_loop: Loop,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", logger="tarry.http.access")
    monkeypatch.setattr(transfer, "BATCH", 2)
    host, _, port = broker_url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as leaving:
        head = f"POST /v1/queues/q/import HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1000000\r\n\r\n"
        leaving.sendall(head.encode() + lines(*({"payload": i} for i in range(5))))
        until(lambda: "q" in {info.name for info in http_loop.run(behind.queues.list())})
    until(lambda: "/v1/queues/{queue}/import" in caplog.text, "the broker did not notice")
    assert http_loop.run(behind.queues.counts("q")).ready.n == 4
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_key_has_so_many_exports_at_once_and_one_that_is_left_counts_no_longer(
    behind: AsyncApp, http_loop: Loop
) -> None:
    with broker_on(behind, http_loop, BrokerSettings(anonymous=True, streams_per_key=1)) as url:
        body = lines(*({"payload": "x" * 100_000} for _ in range(300)))  # more than sockets buffer
        assert httpx.post(f"{url}/v1/queues/q/import", content=body, headers=LINES).status_code == 200
        with httpx.stream("GET", f"{url}/v1/queues/q/export") as first:
            assert first.status_code == 200
            assert code(httpx.get(f"{url}/v1/queues/q/export")) == (429, "too_many")

        def finished() -> bool:
            again = httpx.get(f"{url}/v1/queues/q/export")
            return again.status_code == 200 and again.text.count("\n") == 300

        until(finished, "the place of the first was not given back")
