"""Clients that send or read slowly, or open connections without end, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
import socket
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from datetime import timedelta
from http.client import HTTPResponse
from typing import Any

import httpx
import pytest

from tarry import Message
from tarry.app import AsyncApp
from tarry.edges.http import connection_limits
from tarry.edges.http.app import broker_app
from tarry.edges.http.connection_limits import most_connections
from tarry.edges.http.server import BrokerServer, bind
from tarry.edges.http.settings import BrokerSettings
from tests.edges.cli.test_cli_broker import address
from tests.edges.conftest import process as process  # noqa: PLC0414 - a fixture
from tests.kit.blocking import Loop
from tests.kit.sleepers import until, waiting

TIMEOUT_S = 30
HALF = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Half: "
WHOLE = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
SOON = timedelta(milliseconds=300)
DOCUMENT = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
PAGE = b"GET /v1/queues/q/messages HTTP/1.1\r\nHost: localhost\r\n\r\n"
POLL = b'POST /v1/queues/q/messages:poll HTTP/1.1\r\nHost: localhost\r\nContent-Length: 11\r\n\r\n{"wait":60}'
IMPORT = b"POST /v1/queues/q/import HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n{"
IMPORT_CHUNKED = b"POST /v1/queues/q/import HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
OFFER = b'POST /v1/queues/q/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 13\r\n\r\n{"payload":1}'
UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQ\r\n"
STREAM = b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
SMALL = 4_096


class Served:
    def __init__(self, server: BrokerServer, port: int) -> None:
        self._server = server
        self.port = port

    @property
    def connections(self) -> int:
        return len(self._server.server_state.connections)

    @property
    def unread(self) -> list[int]:
        """Bytes that the process keeps for each client that does not read."""
        open_now = list(self._server.server_state.connections)
        return [size for connection in open_now if (size := connection.transport.get_write_buffer_size())]

    @property
    def waiting(self) -> list[int]:
        """Pipelined requests that are parsed and not carried out yet, of each connection that has some."""
        connections: list[Any] = list(self._server.server_state.connections)
        return [len(connection.pipeline) for connection in connections if connection.pipeline]

    @contextmanager
    def client(self, sent: bytes = b"", *, receive_buffer: int | None = None) -> Iterator[socket.socket]:
        with socket.socket() as client:
            if receive_buffer is not None:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            client.settimeout(TIMEOUT_S)
            client.connect(("127.0.0.1", self.port))
            client.sendall(sent)
            yield client


@pytest.fixture
def serve(behind: AsyncApp, http_loop: Loop) -> Iterator[Callable[..., Served]]:
    with ExitStack() as stack:

        def start(**settings: Any) -> Served:
            @asynccontextmanager
            async def running() -> AsyncIterator[Served]:
                with bind("127.0.0.1", 0) as listening:
                    # Inherited by its connections: what a client does not read stays in the process.
                    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8_192)
                    server = BrokerServer(broker_app(behind, BrokerSettings(anonymous=True, **settings)))
                    task = asyncio.create_task(server.serve([listening]))
                    await server.open.wait()
                    yield Served(server, listening.getsockname()[1])
                    server.should_exit = True
                    await task

            served = running()
            stack.callback(lambda: http_loop.run(served.__aexit__(None, None, None)))
            return http_loop.run(served.__aenter__())

        yield start


@pytest.fixture
def large_page(behind: AsyncApp, http_loop: Loop) -> int:
    """A queue `q` whose first page has at least so many bytes."""

    async def fill() -> None:
        await behind.queues.create("q")
        for _ in range(4):
            await behind.queue("q").offer(None, "x" * 200_000)

    http_loop.run(fill())
    return 800_000


def is_closed(client: socket.socket) -> bool:
    """Once the broker closes it; waits for that."""
    try:
        while client.recv(65_536):
            pass
    except ConnectionResetError:
        pass
    return True


def trickle(client: socket.socket, data: bytes) -> threading.Thread:
    """One byte after the other, for as long as the broker takes them."""
    ended = threading.Event()

    def send() -> None:
        with contextlib.suppress(OSError):
            while not ended.wait(0.01):
                client.sendall(data)

    sending = threading.Thread(target=send, daemon=True)
    sending.start()
    return sending


class TestSlowSenders:
    def test_a_head_that_is_not_sent_in_time_ends_the_connection(self, serve: Callable[..., Served]) -> None:
        served = serve(head_for=SOON)
        with served.client(HALF) as client:
            sending = trickle(client, b"x")
            assert is_closed(client)
            sending.join(TIMEOUT_S)

    def test_a_connection_without_a_byte_ends(self, serve: Callable[..., Served]) -> None:
        with serve(head_for=SOON).client() as client:
            assert is_closed(client)

    def test_the_second_head_of_a_connection_has_the_same_limit(self, serve: Callable[..., Served]) -> None:
        with serve(head_for=SOON).client(WHOLE) as client:
            assert b"200 OK" in client.recv(65_536)
            client.sendall(HALF)
            sending = trickle(client, b"x")
            assert is_closed(client)
            sending.join(TIMEOUT_S)

    @pytest.mark.parametrize(
        "begin", [b"GET /healthz HTTP/1.1\r\nX-Long: ", IMPORT_CHUNKED + b"0\r\nX-Long: "], ids=["head", "trailer"]
    )
    def test_a_head_or_a_trailer_without_end_ends_the_connection(
        self, serve: Callable[..., Served], begin: bytes
    ) -> None:
        with serve().client(begin) as client:
            with contextlib.suppress(OSError):
                for _ in range(200):
                    client.sendall(b"x" * 1_024)
            assert is_closed(client)

    def test_a_body_that_trickles_after_its_refusal_ends_the_connection(self, serve: Callable[..., Served]) -> None:
        head = b"POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n"
        with serve(head_for=SOON).client(head) as client:
            assert b"405 Method Not Allowed" in client.recv(65_536)
            sending = trickle(client, b"x")
            assert is_closed(client)
            sending.join(TIMEOUT_S)

    def test_a_body_that_is_not_sent_in_time_is_a_408(self, serve: Callable[..., Served]) -> None:
        head = b"POST /v1/queues/q/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n"
        with serve(body_for=SOON, head_for=SOON).client(head) as client:
            sending = trickle(client, b" ")
            assert b"408 Request Timeout" in client.recv(65_536)
            assert is_closed(client)
            sending.join(TIMEOUT_S)

    def test_a_request_that_waits_longer_than_the_timeout_of_a_head_is_served(
        self, serve: Callable[..., Served]
    ) -> None:
        served = serve(head_for=timedelta(milliseconds=1), write_for=timedelta(milliseconds=1))
        response = httpx.post(
            f"http://127.0.0.1:{served.port}/v1/queues/q/messages:poll", json={"wait": 2}, timeout=TIMEOUT_S
        )
        assert response.status_code == 204


class TestSlowReaders:
    @pytest.mark.parametrize("more", [b"", b"Connection: close\r\n"], ids=["kept alive", "closed"])
    def test_a_response_that_is_not_read_in_time_ends_the_connection(
        self,
        serve: Callable[..., Served],
        behind: AsyncApp,
        http_loop: Loop,
        more: bytes,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(connection_limits, "READ_BYTES_PER_S", 10**9)

        async def fill() -> None:
            await behind.queues.create("q")
            for _ in range(4):
                await behind.queue("q").offer(None, "x" * 200_000)

        http_loop.run(fill())
        served = serve(write_for=SOON)
        get = b"GET /v1/queues/q/messages HTTP/1.1\r\nHost: localhost\r\n" + more + b"\r\n"
        with served.client(get, receive_buffer=4_096) as client:
            assert client.recv(1) == b"H"
            until(lambda: not served.connections, "the answer is still held")

    def test_a_client_that_reads_gets_all_of_a_long_response(
        self, serve: Callable[..., Served], behind: AsyncApp, http_loop: Loop
    ) -> None:
        async def fill() -> None:
            await behind.queues.create("q")
            await behind.queue("q").offer_many([Message(payload="x" * 200_000) for _ in range(12)])

        http_loop.run(fill())
        served = serve(write_for=SOON)
        response = httpx.get(f"http://127.0.0.1:{served.port}/v1/queues/q/export", timeout=TIMEOUT_S)
        assert len(response.text.splitlines()) == 12

    def test_all_pipelined_requests_of_a_slow_reader_are_served(self, serve: Callable[..., Served]) -> None:
        served = serve(head_for=SOON)
        with served.client(DOCUMENT * 3 + DOCUMENT[:20], receive_buffer=SMALL) as client:
            until(lambda: bool(served.unread))
            client.sendall(DOCUMENT[20:].replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            received = bytearray()
            while data := client.recv(65_536):
                received += data
        assert received.count(b"HTTP/1.1 200 OK") == 4
        assert received.endswith(b"}")

    def test_all_of_many_pipelined_requests_are_served_in_order(self, serve: Callable[..., Served]) -> None:
        with serve().client((OFFER + WHOLE) * 500) as client:
            client.sendall(OFFER.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            received = bytearray()
            while data := client.recv(65_536):
                received += data
        statuses = [int(part[:3]) for part in bytes(received).split(b"HTTP/1.1 ")[1:]]
        assert statuses == [201, 200] * 500 + [201]

    def test_few_pipelined_requests_are_parsed_before_their_turn(self, serve: Callable[..., Served]) -> None:
        served = serve()
        with served.client(POLL + WHOLE * 5_000):
            until(lambda: bool(served.waiting))
            assert max(served.waiting) <= 100

    @pytest.mark.parametrize("parts", [1, 2])
    def test_a_request_that_offers_another_protocol_is_carried_out_with_its_body(
        self, serve: Callable[..., Served], parts: int
    ) -> None:
        """As the first request of Java's client does."""
        sent = OFFER.replace(b"Host", UPGRADE + b"Host") + OFFER + WHOLE.replace(b"Host", UPGRADE + b"Host") + WHOLE
        with serve().client(sent[:200] if parts == 2 else sent) as client:
            client.sendall(sent[200:] if parts == 2 else b"")
            received = bytearray()
            while received.count(b"HTTP/1.1 ") < 4:
                received += client.recv(65_536)
        statuses = [int(part[:3]) for part in bytes(received).split(b"HTTP/1.1 ")[1:]]
        assert statuses == [201, 201, 200, 200]

    @pytest.mark.parametrize("get", [DOCUMENT, PAGE], ids=["without a key", "with a key"])
    def test_pipelined_requests_of_clients_that_do_not_read_lock_out_no_other_client(
        self, serve: Callable[..., Served], large_page: int, get: bytes
    ) -> None:
        served = serve(connections=5)
        with ExitStack() as stack:
            for _ in range(5):
                stack.enter_context(served.client(get * 40, receive_buffer=SMALL))
            until(lambda: len(served.unread) == 5)
            for _ in range(6):
                with served.client(WHOLE) as client:
                    assert b"200 OK" in client.recv(65_536)

    def test_a_response_that_is_still_being_read_is_not_cut_while_an_idle_connection_can_give_way(
        self, serve: Callable[..., Served], large_page: int
    ) -> None:
        served = serve(connections=3)
        with ExitStack() as stack:
            reading = stack.enter_context(served.client(PAGE, receive_buffer=SMALL))
            until(lambda: bool(served.unread))
            idle = [stack.enter_context(served.client(WHOLE)) for _ in range(2)]
            for client in idle:
                assert b"200 OK" in client.recv(65_536)
            with served.client(WHOLE) as client:
                assert b"200 OK" in client.recv(65_536)
            assert is_closed(idle[0])
            assert len(response_on(reading)) > large_page

    def test_bytes_that_clients_do_not_read_have_a_bound_over_all_connections(
        self, serve: Callable[..., Served], large_page: int
    ) -> None:
        served = serve(unread_bytes=large_page * 3 // 2)
        with ExitStack() as stack:
            small = stack.enter_context(served.client(DOCUMENT, receive_buffer=SMALL))
            for large in [stack.enter_context(served.client(PAGE, receive_buffer=SMALL)) for _ in range(4)]:
                with contextlib.suppress(ConnectionResetError):  # answered, and perhaps closed by now
                    assert large.recv(1) == b"H"
            until(lambda: sum(served.unread) <= large_page * 3 // 2)
            assert response_on(small), "the largest are closed"


def response_on(client: socket.socket) -> bytes:
    """The body of the next response. Raises if the broker cuts it."""
    response = HTTPResponse(client)
    response.begin()
    assert response.status == 200
    return response.read()


class TestManyConnections:
    def test_a_connection_without_a_request_gives_way_to_a_new_one(self, serve: Callable[..., Served]) -> None:
        served = serve(connections=5)
        with ExitStack() as stack:
            clients = [stack.enter_context(served.client(HALF)) for _ in range(5)]
            until(lambda: served.connections == 5)
            with served.client(WHOLE) as client:
                assert b"200 OK" in client.recv(65_536)
            assert is_closed(clients[0])

    def test_while_all_are_in_use_a_new_one_is_refused(
        self, serve: Callable[..., Served], behind: AsyncApp, key: Callable[..., str]
    ) -> None:
        keys = [
            key("produce", "consume") for _ in range(2)
        ]  # one has no more than half of the connections for its polls
        served = serve(connections=4)
        with ExitStack() as stack:
            for n in range(4):
                authorized = b"\r\nAuthorization: Bearer %b\r\n" % keys[n % 2].encode()
                stack.enter_context(served.client(POLL.replace(b"\r\n", authorized, 1)))
            until(lambda: waiting(behind.store.wakeup.wait_queue, "q") == 4)
            with served.client() as client:
                refused = client.recv(65_536)
            assert refused.startswith(b"HTTP/1.1 503 ")
            assert b'"code":"too_many"' in refused

        def is_served() -> bool:
            with served.client(WHOLE) as client:
                return b"200 OK" in client.recv(65_536)

        until(is_served, "a client is refused although the others have left")

    @pytest.mark.parametrize("long", [POLL, IMPORT, STREAM], ids=["poll", "import", "stream"])
    def test_one_caller_has_half_of_the_connections_for_long_requests(
        self, serve: Callable[..., Served], long: bytes
    ) -> None:
        served = serve(connections=3)

        def poll() -> httpx.Response:
            url = f"http://127.0.0.1:{served.port}/v1/queues/q/messages:poll"
            return httpx.post(url, json={"wait": 0.01}, timeout=TIMEOUT_S)

        with served.client(long):
            until(lambda: poll().status_code == 429, "the long request is not counted")
            assert poll().json()["code"] == "too_many"
            with served.client(WHOLE) as other:
                assert b"200 OK" in other.recv(65_536)
        until(lambda: poll().status_code == 204, "its place was not given back")

    def test_an_import_counts_until_its_response_is_read(self, serve: Callable[..., Served]) -> None:
        served = serve(connections=3)
        url = f"http://127.0.0.1:{served.port}/v1/queues/q/"
        lines = b"{}\n" * 20_000
        head = b"POST /v1/queues/q/import HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(lines)
        with served.client(head + lines, receive_buffer=SMALL):
            until(lambda: bool(served.unread), "there is no response")
            assert httpx.post(f"{url}messages:poll", json={}, timeout=TIMEOUT_S).status_code == 429

    def test_the_broker_process_raises_its_limit_of_descriptors_for_its_connections(
        self, process: Callable[..., subprocess.Popen[bytes]]
    ) -> None:
        broker = process(
            "serve", "--port", "0", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 4_096))
        )
        address(broker)
        assert resource.prlimit(broker.pid, resource.RLIMIT_NOFILE) == (4_096, 4_096)

    def test_no_more_than_the_descriptors_of_the_process_allow(self) -> None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert most_connections(10) == 10
        assert most_connections(10**9) < soft

    def test_with_few_descriptors_half_sent_heads_stop_no_other_client(
        self, process: Callable[..., subprocess.Popen[bytes]]
    ) -> None:
        def few() -> None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))

        broker = process("serve", "--port", "0", preexec_fn=few)
        url = httpx.URL(address(broker))
        with ExitStack() as stack:
            for _ in range(600):
                client = stack.enter_context(socket.socket())
                client.settimeout(TIMEOUT_S)
                client.connect((url.host, url.port or 80))
                with contextlib.suppress(ConnectionError):
                    client.sendall(HALF)
            for _ in range(10):
                assert httpx.get(url.join("/healthz"), timeout=TIMEOUT_S).status_code == 200
        broker.send_signal(signal.SIGTERM)
        _, log = broker.communicate(timeout=TIMEOUT_S)
        assert broker.returncode == 0
        assert b"Traceback" not in log
        assert log.count(b"to make room") == 1
