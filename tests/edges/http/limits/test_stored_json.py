"""Stored payloads are checked with other requests in between."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tarry.app import AsyncApp
from tarry.edges.http import pages
from tarry.wire import dead_letters, messages
from tests.edges.http.conftest import Caller
from tests.kit.blocking import Loop


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
