"""Tests of services await: each gets an event loop of its own."""

from __future__ import annotations

import asyncio
import inspect

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    needed = pyfuncitem.funcargs.keys() & inspect.signature(test).parameters.keys()
    asyncio.run(test(**{name: pyfuncitem.funcargs[name] for name in needed}))
    return True
