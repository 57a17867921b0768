"""Requests to an https address: the certificate of the broker is verified."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tarry.storage.http._sync.connections import ConnectionPool
from tarry.storage.http.call import Call
from tarry.storage.http.connections import AsyncConnectionPool
from tarry.storage.http.protocol import Address, HttpResponse
from tests.kit.certificates import self_signed

CALL = Call("GET", "/healthz")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return self_signed(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def url(certificate: Path) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, f"{certificate}.key")
    with socket.create_server(("localhost", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    raw, _ = server.accept()
                    with suppress(OSError), context.wrap_socket(raw, server_side=True) as client:
                        client.recv(65_536)
                        client.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"https://localhost:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def exchange(kind: str, url: str) -> HttpResponse:
    address = Address(url, "secret")
    request = address.request(CALL, 10.0)

    async def awaited() -> HttpResponse:
        pool = AsyncConnectionPool(address, 1)
        response = await pool.exchange(request)
        await pool.close()
        return response

    if kind == "awaiting":
        return asyncio.run(awaited())
    pool = ConnectionPool(address, 1)
    response = pool.exchange(request)
    pool.close()
    return response


@pytest.mark.parametrize("kind", ["blocking", "awaiting"])
def test_a_certificate_that_the_system_trusts_is_accepted(
    kind: str, url: str, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    response = exchange(kind, url)
    assert (response.status, response.take_body()) == (200, b"ok")


@pytest.mark.parametrize("kind", ["blocking", "awaiting"])
def test_any_other_certificate_is_refused(kind: str, url: str) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        exchange(kind, url)


@pytest.mark.parametrize("kind", ["blocking", "awaiting"])
def test_a_certificate_of_another_host_is_refused(
    kind: str, url: str, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with pytest.raises(ssl.SSLCertVerificationError, match="127"):
        exchange(kind, url.replace("localhost", "127.0.0.1"))
