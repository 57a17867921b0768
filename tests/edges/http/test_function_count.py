"""An offer over HTTP passes at most 20 functions of the project between the middleware and the socket."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from tarry.app import AsyncApp
from tarry.edges.http.app import broker_app
from tarry.edges.http.middleware import RequestMiddleware
from tarry.edges.http.settings import BrokerSettings
from tarry.storage.postgres.messages.group_commit import GroupCommit
from tarry.storage.postgres.prepared import PreparedStatements
from tests.edges.http.conftest import Caller
from tests.edges.http.test_on_postgres import behind
from tests.kit.blocking import Loop
from tests.test_walks import passed

__all__ = ["behind"]

MOST = 20


@pytest.mark.parametrize("headers", [{}, {"idempotency-key": "x"}], ids=["plain", "idempotent"])
def test_an_offer_passes_few_functions(behind: AsyncApp, http_loop: Loop, headers: dict[str, str]) -> None:
    key = http_loop.run(behind.keys.create("shop", ["produce"])).text
    http_loop.run(behind.queues.create("q"))
    call = Caller(broker_app(behind, BrokerSettings()), http_loop, key)
    submitted: list[str] = []
    sent: list[str] = []

    def profile(frame: FrameType, event: str, _: Any) -> None:
        # The request hands its offer to a group commit, which another task sends.
        if event == "call" and frame.f_code is GroupCommit.submit.__code__:
            submitted[:] = [*passed(frame)][::-1]
        if event == "call" and frame.f_code is PreparedStatements.execute.__code__ and submitted:
            sent[:] = max(sent, [*passed(frame)][::-1], key=len)

    async def offer() -> int:
        sys.setprofile(profile)
        try:
            return (await call.request("POST", "/v1/queues/q/messages", {"payload": 1}, headers=headers)).status_code
        finally:
            sys.setprofile(None)

    assert http_loop.run(offer()) == 201
    assert submitted[0] == RequestMiddleware.__call__.__qualname__
    walk = dict.fromkeys([*submitted, *sent])  # a coroutine that is resumed is passed once
    assert sent
    assert len(walk) <= MOST, " > ".join(walk)
