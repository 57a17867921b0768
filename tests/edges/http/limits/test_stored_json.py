"""Stored payloads are checked before they are passed through: cheaply, and with other requests in between."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import Any

import msgspec
import pytest

from tarry.app import AsyncApp
from tarry.edges.http import pages
from tarry.wire import dead_letters, messages
from tarry.wire.payload import Content
from tests.edges.http.conftest import Caller
from tests.kit.blocking import Loop

NESTED = b"[" + b",".join([b"[]"] * 85_000) + b"]"
TEXTS = [
    b"1", b" 1 ", b"{}", b'"a"', b"[1e5]", b"1e-999", b"9" * 400, b'"1e999"', b"[" * 500 + b"]" * 500,
    b'"\\u0000"', '"ü"'.encode(),
    b"", b" ", b"1 x", b"{} {}", b"NaN", b"[NaN]", b"-Infinity", b'"\xff"', b'{"\xff":1}', b'["\xc3("]', b'"\xed\xa0\x80"',
    b'"\\ud800"', b'"\x01"', b'"\\x"', b"01", b"1.", b"1e", b"[1,]", b"{a:1}", b'"abc', b"\xef\xbb\xbf1", b"1\x00",
    b"1e999", b"[1E+0999]", b"-1e400", b"9" * 400 + b".5", b"9" * 250 + b"e99", b"9" * 5_000, b"[" * 5_000 + b"]" * 5_000,
]  # fmt: skip


def test_a_payload_is_checked_without_building_its_objects() -> None:
    content = Content(NESTED, None)
    tracemalloc.start()
    try:
        assert "payload" in content.shown()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * len(NESTED), "85,000 lists take five megabytes"


@pytest.mark.parametrize("data", TEXTS, ids=lambda data: repr(data[:12]))
def test_only_what_a_client_can_decode_is_passed_through(data: bytes) -> None:
    try:
        msgspec.json.decode(data)
        readable = True
    except (msgspec.MsgspecError, ValueError, RecursionError):
        readable = False
    assert ("payload" in Content(data, None).shown()) == readable


@pytest.mark.parametrize(("path", "shown"), [("messages", messages.Message), ("dead", dead_letters.DeadLetter)])
def test_other_requests_are_served_between_the_rows_of_a_page(
    call: Caller, behind: AsyncApp, http_loop: Loop, monkeypatch: pytest.MonkeyPatch, path: str, shown: Any
) -> None:
    turns, seen, show = 0, list[int](), shown.of

    def noted(row: Any) -> Any:
        seen.append(turns)
        return show(row)

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def story() -> None:
        beside = asyncio.create_task(others())
        assert (await call.request("GET", f"/v1/queues/q/{path}")).status_code == 200
        beside.cancel()

    http_loop.run(behind.queues.create("q"))
    for n in range(5):
        http_loop.run(behind.queue("q").offer(str(n), n))
        if path == "dead":
            http_loop.run(behind.store.run(behind.store.messages.bury_by_key("q", str(n))))
    monkeypatch.setattr(pages, "SLICE_S", 0.0)
    monkeypatch.setattr(shown, "of", noted)
    http_loop.run(story())
    assert len(set(seen)) == 5
