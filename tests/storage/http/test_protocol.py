"""Requests and responses as bytes: what a broker, or a proxy before it, may send, and what must not be sent to it."""

from __future__ import annotations

import cProfile
import pstats
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tarry.core.errors import InvalidInput, InvalidState
from tarry.core.messages.model import Draft
from tarry.http import Client
from tarry.storage.http._sync.connections import ConnectionPool
from tarry.storage.http.call import Call
from tarry.storage.http.protocol import Address, HttpRequest, HttpResponse
from tarry.wire.messages import OfferRequest

SMALL = b"HTTP/1.1 201 Created\r\nX-Small: a\r\nContent-Length: 4\r\n\r\nbody"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nbo\r\n2\r\ndy\r\n0\r\n\r\n"
HINTED = b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + SMALL
TO_THE_END = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\n\r\nbody"


def request(data: bytes = b"", within_s: float = 30) -> HttpRequest:
    return HttpRequest(data, within_s, within_s)


@pytest.mark.parametrize(
    ("data", "status", "keeps_alive"), [(SMALL, 201, True), (CHUNKED, 200, True), (HINTED, 201, True)]
)
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_a_response_may_come_in_any_parts(data: bytes, status: int, keeps_alive: bool, size: int) -> None:
    response = HttpResponse()
    for start in range(0, len(data), size):
        assert not response.is_complete
        response.receive(data[start : start + size])
    assert (response.is_complete, response.status, response.keeps_alive) == (True, status, keeps_alive)
    assert (response.take_body(), response.take_body()) == (b"body", b"")


def test_a_header_is_found_whatever_its_case() -> None:
    response = HttpResponse()
    response.receive(SMALL)
    assert (response.header(b"x-small"), response.header(b"x-other")) == ("a", "")


def test_a_response_without_a_length_ends_with_the_connection() -> None:
    response = HttpResponse()
    response.receive(TO_THE_END)
    assert not response.is_complete
    response.receive(b"")
    assert (response.is_complete, response.keeps_alive, response.take_body()) == (True, False, b"body")


@pytest.mark.parametrize("data", [b"", SMALL[:30], SMALL[:-1], CHUNKED[:-5]])
def test_a_response_that_is_cut_off_is_none(data: bytes) -> None:
    response = HttpResponse()
    if data:
        response.receive(data)
    with pytest.raises(ConnectionError):
        response.receive(b"")


def test_what_is_not_http_is_an_error_of_the_connection() -> None:
    with pytest.raises(ConnectionError, match="not HTTP"):
        HttpResponse().receive(b"SSH-2.0-OpenSSH_9.2\r\n")


def test_a_request_has_its_target_headers_and_body() -> None:
    address = Address("https://broker.example/tarry/", "tarry_k")
    call = Call("POST", "/v1/queues/%2E%2E/a b:c", {"n": 1}, params={"q": ["a&b", "é"], "n": 2}, key="once", wait_s=5)
    made = address.request(call, 3)
    head, _, body = made.data.partition(b"\r\n\r\n")
    assert (address.host, address.port, address.is_secure) == ("broker.example", 443, True)
    assert head.split(b"\r\n") == [
        b"POST /tarry/v1/queues/%2E%2E/a%20b:c?q=a%26b&q=%C3%A9&n=2 HTTP/1.1",
        b"host: broker.example",
        b"user-agent: tarry",
        b"authorization: Bearer tarry_k",
        b"idempotency-key: once",
        b"content-type: application/json",
        b"content-length: 7",
    ]
    assert (body, made.connect_s, made.reply_s) == (b'{"n":1}', 3, 35)


@pytest.mark.parametrize(
    "url", ["", "localhost:8080", "ftp://x", "http://", "http://a:b", "http://[::1", "http://u:p@x"]
)
def test_what_is_no_url_of_a_broker_is_rejected(url: str) -> None:
    with pytest.raises(InvalidInput, match="not the URL") as refused:
        Client(url)
    assert "u:p" not in str(refused.value)


def test_a_header_has_no_second_line() -> None:
    with pytest.raises(InvalidInput, match="authorization must be printable"):
        Client("http://localhost", "k\r\nx: y")
    with Client("http://localhost:1") as client, pytest.raises(InvalidInput, match="last-event-id"):
        next(iter(client.events(after="p\r\nx: y")))


@contextmanager
def responding(*responses: bytes) -> Iterator[tuple[str, list[int]]]:
    """A server that gives these answers, and closes the connection after each that is followed by none."""
    accepted: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            for response in responses:
                taken, _ = listening.accept()
                with taken:
                    accepted.append(1)
                    taken.recv(65_536)
                    taken.sendall(response)
                    taken.shutdown(socket.SHUT_WR)
                    while taken.recv(65_536):
                        pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", accepted
        thread.join(30)


def test_a_connection_that_was_closed_meanwhile_is_opened_anew_before_the_next_request() -> None:
    with responding(SMALL, SMALL) as (url, accepted):
        pool = ConnectionPool(Address(url, None), 1)
        for _ in range(2):
            assert pool.exchange(request(b"GET / HTTP/1.1\r\n\r\n")).status == 201
            connection = pool._idle[0]  # pyright: ignore[reportPrivateUsage]
            while not connection.is_stale:
                pass
        pool.close()
    assert len(accepted) == 2


def test_a_request_that_is_refused_before_it_was_read_has_its_response() -> None:
    with responding(TO_THE_END) as (url, _):
        pool = ConnectionPool(Address(url, None), 1)
        assert pool.exchange(request(b"x" * 1_000)).status == 503
        pool.close()


def test_a_closed_client_sends_nothing() -> None:
    client = Client("http://localhost:1")
    client.close()
    with pytest.raises(InvalidState, match="closed"):
        client.queue("q").contains("a")


def test_an_offer_takes_few_calls(broker_url: str) -> None:
    """With httpx it took 2,147."""
    with Client(broker_url) as client:
        queue = client.queue("q")
        queue.offer("first", 1)
        profile = cProfile.Profile()
        profile.enable()
        queue.offer("second", 1)
        profile.disable()
    calls: int = pstats.Stats(profile).total_calls  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType]
    assert calls < 250


def test_the_broker_generates_the_key_of_a_message_without_one() -> None:
    assert OfferRequest.of(Draft("generated", b"1", fresh=True)).key is None
    assert OfferRequest.of(Draft("given", b"1")).key == "given"
