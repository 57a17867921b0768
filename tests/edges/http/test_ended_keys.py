"""A key that is revoked or expires ends what it has under way: imports, slow bodies, long polls. And it leaves no heir."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tarry.api import transfer
from tarry.app import AsyncApp
from tarry.core.messages.model import Filter
from tarry.core.security.api_keys import Action
from tarry.edges.http import pages as slicing
from tarry.edges.http.app import broker_app
from tarry.edges.http.settings import BrokerSettings
from tarry.testing import MutableClock
from tests.edges.http.conftest import Caller
from tests.edges.http.limits.test_keyless import every_refusal
from tests.edges.http.test_responses import code
from tests.kit.blocking import Loop
from tests.kit.brokers import broker_on
from tests.kit.calls import call_of, replace_call
from tests.kit.sleepers import until, waiting

Make = Callable[..., str]
BATCH = 500
HOUR = timedelta(hours=1)
FRESH = BrokerSettings(keys_cached_for=timedelta(0))


@pytest.fixture
def guarded_url(behind: AsyncApp, http_loop: Loop) -> Iterator[str]:
    http_loop.run(behind.queues.create("q"))
    with broker_on(behind, http_loop, FRESH) as url:
        yield url


class HalfSent:
    """A request whose body is announced and sent bit by bit."""

    def __init__(self, url: str, path: str, key: str) -> None:
        split = urlsplit(url)
        self._socket = socket.create_connection((split.hostname, split.port), timeout=60)
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {split.netloc}\r\nAuthorization: Bearer {key}\r\n"
            "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        self._socket.sendall(head.replace("json", "x-ndjson" if path.endswith("import") else "json").encode())

    def send(self, body: bytes) -> None:
        self._socket.sendall(b"%x\r\n%b\r\n" % (len(body), body))

    def end(self) -> None:
        self._socket.sendall(b"0\r\n\r\n")

    def status(self) -> int:
        """Waits for the response; its body is in `problem`."""
        with self._socket, self._socket.makefile("rb") as response:
            status = int(response.readline().split()[1])
            length = 0
            while header := response.readline().strip().lower():
                name, _, value = header.partition(b":")
                length = int(value) if name == b"content-length" else length
            self.problem = json.loads(response.read(length) or b"{}")
            return status


def lines(start: int) -> bytes:
    return b"".join(b'{"key":"k%d","payload":1}\n' % n for n in range(start, start + BATCH))


def stored(app: AsyncApp, loop: Loop) -> int:
    return len(loop.run(app.store.run(app.store.messages.list("q", limit=10_000, filter=Filter()))))


def end(how: str, app: AsyncApp, loop: Loop, clock: MutableClock, key: str) -> None:
    """Behind the broker's back, as another broker or the command line does it."""
    if how == "revoked":
        loop.run(app.store.run(app.store.security.revoke_key(key.split("_")[1])))
    else:
        clock.advance(2 * HOUR)


@pytest.fixture(params=["revoked", "expired"])
def how(request: pytest.FixtureRequest) -> str:
    return request.param


def test_a_key_that_has_ended_opens_no_route(
    behind: AsyncApp, http_loop: Loop, pinned: MutableClock, key: Make, how: str
) -> None:
    text = key(*Action, expires_for=HOUR)
    call = Caller(broker_app(behind, FRESH), http_loop, text)
    assert call("GET", "/v1/queues").status_code == 200
    end(how, behind, http_loop, pinned, text)
    assert every_refusal(call) == {(401, "unauthorized")}


class TestAnImport:
    def test_stores_nothing_more_once_its_key_has_ended(
        self, guarded_url: str, behind: AsyncApp, http_loop: Loop, pinned: MutableClock, key: Make, how: str
    ) -> None:
        text = key("produce", expires_for=HOUR)
        importing = HalfSent(guarded_url, "/v1/queues/q/import", text)
        importing.send(lines(0))
        until(lambda: stored(behind, http_loop) == BATCH, "the first batch was never stored")
        end(how, behind, http_loop, pinned, text)
        importing.send(lines(BATCH))
        assert importing.status() == 401
        assert importing.problem["stored_lines"] == BATCH
        assert stored(behind, http_loop) == BATCH

    def test_ends_although_its_client_sends_nothing_more(
        self, guarded_url: str, behind: AsyncApp, http_loop: Loop, pinned: MutableClock, key: Make, how: str
    ) -> None:
        text = key("produce", expires_for=HOUR)
        importing = HalfSent(guarded_url, "/v1/queues/q/import", text)
        importing.send(lines(0) + b'{"key":"half')
        until(lambda: stored(behind, http_loop) == BATCH, "the first batch was never stored")
        end(how, behind, http_loop, pinned, text)
        assert importing.status() == 401
        assert stored(behind, http_loop) == BATCH

    def test_ends_before_its_last_lines_are_stored(
        self, guarded_url: str, behind: AsyncApp, http_loop: Loop, pinned: MutableClock, key: Make, how: str
    ) -> None:
        text = key("produce", expires_for=HOUR)
        importing = HalfSent(guarded_url, "/v1/queues/q/import", text)
        importing.send(lines(0) + b'{"key":"last","payload":1}\n')
        until(lambda: stored(behind, http_loop) == BATCH, "the first batch was never stored")
        end(how, behind, http_loop, pinned, text)
        importing.end()
        assert importing.status() == 401
        assert stored(behind, http_loop) == BATCH


def test_a_body_that_is_complete_only_after_the_key_has_ended_does_nothing(
    behind: AsyncApp, http_loop: Loop, pinned: MutableClock, key: Make, how: str
) -> None:
    http_loop.run(behind.queues.create("q"))
    text = key("produce", expires_for=HOUR)
    call = Caller(broker_app(behind, FRESH), http_loop, text)

    async def body() -> AsyncIterator[bytes]:
        yield b'{"key":"k",'  # taken when the key was looked at already
        if how == "revoked":
            await behind.store.run(behind.store.security.revoke_key(text.split("_")[1]))
        else:
            pinned.advance(2 * HOUR)
        yield b'"payload":1}'

    for path in ("/v1/queues/q/messages", "/api/queue/import"):
        assert code(call("POST", path, content=body())) == (401, "unauthorized")
    assert stored(behind, http_loop) == 0


def test_a_long_poll_ends_when_its_key_does(
    behind: AsyncApp, http_loop: Loop, pinned: MutableClock, key: Make, how: str
) -> None:
    http_loop.run(behind.queues.create("q"))
    text = key("consume", expires_for=HOUR)
    call = Caller(broker_app(behind, FRESH), http_loop, text)
    with ThreadPoolExecutor() as pool:
        poll = pool.submit(call, "POST", "/v1/queues/q/messages:poll", {"wait": 60})
        until(lambda: waiting(behind.store.wakeup.wait_queue, "q") == 1, "it never waited")
        end(how, behind, http_loop, pinned, text)
        assert code(poll.result(50)) == (401, "unauthorized")


def test_polls_of_one_key_are_watched_together_and_for_no_longer_than_they_wait(
    behind: AsyncApp, http_loop: Loop, key: Make
) -> None:
    http_loop.run(behind.queues.create("q"))
    call = Caller(broker_app(behind, FRESH), http_loop, key("consume", "produce"))
    watches = call.served.state.broker.authenticator._watches
    with ThreadPoolExecutor() as pool:
        polls = [pool.submit(call, "POST", "/v1/queues/q/messages:poll", {"wait": 60}) for _ in range(3)]
        until(lambda: waiting(behind.store.wakeup.wait_queue, "q") == 3, "they never waited")
        assert [users for _, users in watches.values()] == [3]
        for n in range(3):
            call("POST", "/v1/queues/q/messages", {"key": str(n), "payload": 1})
        assert {poll.result(50).status_code for poll in polls} == {200}
    assert not watches


class TestAKeyThatExpires:
    @pytest.mark.parametrize("fields", [{}, {"expires_for": None}, {"expires_for": "2h"}, {"expires_for": 3601}])
    def test_cannot_make_one_that_outlives_it(
        self, behind: AsyncApp, http_loop: Loop, key: Make, fields: dict[str, object]
    ) -> None:
        admin = Caller(broker_app(behind, FRESH), http_loop, key("admin", expires_for=HOUR))
        assert code(admin("POST", "/v1/keys", {"name": "x", "actions": ["admin"], **fields})) == (403, "forbidden")
        assert len(admin("GET", "/v1/keys").json()["keys"]) == 1

    def test_makes_one_that_ends_no_later(
        self, behind: AsyncApp, http_loop: Loop, pinned: MutableClock, key: Make
    ) -> None:
        admin = Caller(broker_app(behind, FRESH), http_loop, key("admin", expires_for=HOUR))
        made = [admin("POST", "/v1/keys", {"name": "x", "actions": ["admin"], "expires_for": n}) for n in (60, 3600)]
        assert [response.status_code for response in made] == [201, 201]
        pinned.advance(HOUR)
        assert not any(key.active for key in http_loop.run(behind.keys.list()))


def test_a_key_that_never_expires_makes_one_that_never_does(behind: AsyncApp, http_loop: Loop, key: Make) -> None:
    admin = Caller(broker_app(behind, FRESH), http_loop, key("admin"))
    assert admin("POST", "/v1/keys", {"name": "x", "actions": ["admin"]}).json()["expires_at"] is None


@pytest.mark.parametrize("path", ["/v1/queues/q/export", "/api/queue/main/export?queueName=q"])
def test_an_export_reads_no_further_page_once_its_key_has_ended(
    behind: AsyncApp, http_loop: Loop, key: Make, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    http_loop.run(behind.queues.create("q"))
    for n in range(5):
        http_loop.run(behind.queue("q").offer(str(n), n))
    text, pages, read = key("read"), 0, call_of(behind.store, "messages.list")

    async def messages(*args: Any, **options: Any) -> Any:
        nonlocal pages
        pages += 1
        page = await read(*args, **options)
        await behind.store.run(behind.store.security.revoke_key(text.split("_")[1]))
        return page

    replace_call(behind.store, "messages.list", messages)
    monkeypatch.setattr(transfer, "PAGE", 1)
    monkeypatch.setattr(slicing, "SLICE", 1)
    with broker_on(behind, http_loop, FRESH) as url, pytest.raises(httpx.RemoteProtocolError):
        httpx.get(url + path, headers={"x-api-key": text})
    assert pages == 1
