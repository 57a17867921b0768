"""Tests of services await: each gets an event loop of its own."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from tarry.testing import MutableClock, async_memory_app
from tests.services.kit import OnMemory, Test


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    needed = pyfuncitem.funcargs.keys() & inspect.signature(test).parameters.keys()
    asyncio.run(test(**{name: pyfuncitem.funcargs[name] for name in needed}))
    return True


@pytest.fixture
def on_memory() -> OnMemory:
    """Runs a coroutine function on an app of its own, with its clock and the queue `orders`."""

    def run(test: Test) -> None:
        async def work() -> None:
            clock = MutableClock()
            async with async_memory_app(clock) as app:
                await test(app, app.queue("orders"), clock)

        asyncio.run(work())

    return run
