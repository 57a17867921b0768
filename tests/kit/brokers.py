"""A broker in this process, on a loop of its own, for tests that reach it by HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tarry.app import AsyncApp
from tarry.edges.http.server import serving
from tarry.edges.http.settings import BrokerSettings
from tests.kit.blocking import Loop


@contextmanager
def broker_on(app: AsyncApp, loop: Loop, settings: BrokerSettings, port: int = 0) -> Iterator[str]:
    """Its address."""
    running = serving(app, settings, port=port)
    url = loop.run(running.__aenter__())
    try:
        yield url
    finally:
        loop.run(running.__aexit__(None, None, None))
