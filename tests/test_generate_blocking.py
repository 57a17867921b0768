"""The tool that generates the blocking half of the API, and that its output is up to date."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

TOOL = Path(__file__).parent.parent / "tools" / "generate-blocking"

WRITTEN = '''\
"""A queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from tarry.core.ports import AsyncStore

LIMIT = 10
_PAUSE_S = 1.0
"""Between two tries."""


def checked(n: int) -> int:
    return min(n, LIMIT)


class AsyncThing:
    """`async with AsyncThing(store)`: … ends it."""

    def __init__(self, store: AsyncStore, poll: Callable[[], Awaitable[int]]) -> None:
        self._store = store
        self._poll = poll

    async def run(self) -> int:
        # Kept: “quotes” of more than a byte do not move what follows.
        text = "…"; found = (await self._store.connections()).open
        await asyncio.sleep(_PAUSE_S)
        return checked(found + await self._poll()) + len(text)

    async def each(self) -> AsyncIterator[int]:
        async for n in self.each():
            yield n

    async def _unless_cancelled(self) -> None:  # ASYNC
        await asyncio.shield(self.close())

    async def __aenter__(self) -> AsyncThing:
        if True:  # ASYNC
            asyncio.get_running_loop()
        else:
            # Only here.
            self.ready = True
        return self

    async def __aexit__(self, *error: object) -> None:
        await asyncio.shield(self.close())

    if True:  # ASYNC

        async def close(self) -> None: ...
    else:

        def close(self) -> None:
            self.ready = False
'''

BLOCKING = '''\
# Generated from src/thing.py by tools/generate-blocking. Edit that file, then run `make generate`.
"""The blocking half of `thing`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from thing import checked

from tarry.core.ports import Store

_PAUSE_S = 1.0
"""Between two tries."""


class Thing:
    """`with Thing(store)`: … ends it."""

    def __init__(self, store: Store, poll: Callable[[], int]) -> None:
        self._store = store
        self._poll = poll

    def run(self) -> int:
        # Kept: “quotes” of more than a byte do not move what follows.
        text = "…"
        found = self._store.connections().open
        time.sleep(_PAUSE_S)
        return checked(found + self._poll()) + len(text)

    def each(self) -> Iterator[int]:
        yield from self.each()

    def __enter__(self) -> Thing:
        # Only here.
        self.ready = True
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self.ready = False
'''


@pytest.fixture
def tool() -> ModuleType:
    spec = spec_from_loader("generate_blocking", SourceFileLoader("generate_blocking", str(TOOL)))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_blocking_half_is_up_to_date() -> None:
    check = subprocess.run([sys.executable, TOOL, "--check"], capture_output=True, text=True, check=False)
    assert (check.returncode, check.stderr) == (0, "")


def test_async_code_becomes_blocking_code(tool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "thing.py").write_text(WRITTEN, encoding="utf-8")
    monkeypatch.setattr(tool, "SOURCES", tmp_path)
    module = tool.read("thing.py")
    tool.spread([module])
    assert tool.formatted(tool.generated(module, {module.name: module}), Path("src/thing.py")) == BLOCKING
