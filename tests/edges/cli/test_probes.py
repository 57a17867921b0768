"""Health, readiness and metrics of workers, schedulers and sweepers."""

from __future__ import annotations

import asyncio
import logging
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable

import pytest

from tarry.app import connect_async
from tarry.core.errors import InvalidState
from tarry.edges.cli.processes.probes import ProbeOptions, probes
from tarry.testing import async_memory_app

Start = Callable[..., subprocess.Popen[bytes]]


def get(url: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url + path, timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_readiness_follows_the_database_and_the_signal(caplog: pytest.LogCaptureFixture, database: str) -> None:
    caplog.set_level(logging.INFO, "tarry")

    async def run() -> None:
        stop = asyncio.Event()
        metrics = b"tarry_up 1\n"
        async with connect_async(database) as app, probes(ProbeOptions(port=0), app.store, stop, lambda: metrics):
            url = caplog.messages[-1].rpartition(" ")[2].rstrip("/")

            async def fetch(path: str) -> tuple[int, str]:
                return await asyncio.to_thread(get, url, path)

            assert await fetch("/healthz") == (200, '{"status":"ok"}')
            assert await fetch("/readyz?verbose") == (200, '{"status":"ok"}')
            assert await fetch("/metrics") == (200, "tarry_up 1\n")
            assert (await fetch("/"))[0] == 404
            stop.set()
            assert await fetch("/readyz") == (503, '{"status":"stopping"}')
            stop.clear()
            await app.close()
            assert await fetch("/readyz") == (503, '{"status":"the database cannot be used"}')
            assert (await fetch("/healthz"))[0] == 200
            with pytest.raises(InvalidState, match=r"probes cannot be served on 127\.0\.0\.1 port"):
                async with probes(ProbeOptions(port=int(url.rpartition(":")[2])), app.store, stop):
                    pass

    asyncio.run(run())


def test_without_a_port_there_is_no_server() -> None:
    async def run() -> None:
        async with async_memory_app() as app, probes(ProbeOptions(), app.store, asyncio.Event()):
            pass

    asyncio.run(run())


@pytest.mark.parametrize("command", ["scheduler", "sweeper"])
def test_a_process_serves_its_probes(command: str, process: Start) -> None:
    started = process(command, "--metrics-port", "0")
    assert started.stderr is not None
    lines = iter(started.stderr.readline, b"")
    url = next(match[0] for line in lines if (match := re.search(r"http://\S+:\d+", line.decode())))
    assert get(url, "/readyz") == (200, '{"status":"ok"}')
    assert get(url, "/metrics")[0] == 404


@pytest.mark.parametrize("sent", [b"GET\r\n\r\n", b"\r\n\r\n", b"GET /healthz", b"x" * 100_000])
def test_a_connection_that_sends_no_request_is_closed(caplog: pytest.LogCaptureFixture, sent: bytes) -> None:
    caplog.set_level(logging.INFO)

    async def run() -> bytes:
        async with async_memory_app() as app, probes(ProbeOptions(port=0), app.store, asyncio.Event()):
            port = int(caplog.messages[-1].rpartition(":")[2].rstrip("/"))
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            writer.write_eof()
            try:
                return await asyncio.wait_for(reader.read(), timeout=30)
            except ConnectionResetError:  # closed with unread bytes
                return b""
            finally:
                writer.close()

    assert b" 200 " not in asyncio.run(run())
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []
