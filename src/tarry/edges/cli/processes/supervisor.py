"""Several processes of one worker: started, kept alive, told to stop, and started again when the code changes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from tarry.core.errors import Refused
from tarry.edges.cli.exits import ExitCode
from tarry.edges.cli.worker_process import Plan
from tarry.edges.env import WORKER_PARENT

_log = logging.getLogger("tarry.worker")
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0
_SETTLED_S = 60.0
"""Whoever lived that long did not die of its start."""
_PATIENCE_S = 5.0
"""Beyond the grace, before a process that does not end is killed."""


def changes_below(folder: Path) -> AsyncIterator[Any]:
    """Of Python files; each is worth a new start."""
    try:
        from watchfiles import PythonFilter, awatch  # pyright: ignore[reportUnknownVariableType] - it lacks a stub
    except ModuleNotFoundError as error:
        raise Refused(
            "--reload watches files with watchfiles, which is not installed", hint="pip install 'tarry[reload]'"
        ) from error
    return awatch(folder, watch_filter=PythonFilter(), debounce=300)


class Child:
    """A process that works for as long as we hold one end of a pipe. It ends in peace when we let go, or die.

    Not by a signal: who stops a service may send one to every process of it, and a second would mean "at once".
    """

    def __init__(self, process: Process, held: int) -> None:
        self.process = process
        self.pid = process.pid
        self._held: int | None = held

    @classmethod
    async def started(cls, command: Sequence[str]) -> Child:
        readable, held = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                env={**os.environ, WORKER_PARENT: str(readable)},
                pass_fds=[readable],
                start_new_session=True,  # Ctrl-C is for the first process alone
            )
        finally:
            os.close(readable)
        return cls(process, held)

    def let_go(self) -> None:
        if self._held is not None:
            os.close(self._held)
            self._held = None


class Fleet:
    def __init__(self, plan: Plan, words: Sequence[str], changes: AsyncIterator[Any] | None = None) -> None:
        """`words`: the command line, which every process gets too."""
        self._plan = plan
        self._words = [word for word in words if word != "--reload"]
        self._changes = changes
        self._children: dict[int, Child] = {}
        self._codes: list[int] = []
        self._stopping = asyncio.Event()
        self._changed = asyncio.Event()  # another one after every change
        self._hurried = False
        self._hopeless = False

    def run(self) -> ExitCode:
        return asyncio.run(self._run())

    async def _run(self) -> ExitCode:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._told, number.name)
        watching = asyncio.create_task(self._watch()) if self._changes is not None else None
        await asyncio.gather(*map(self._keep, range(self._plan.processes)))
        if watching is not None:
            watching.cancel()
            await asyncio.wait([watching])
        if self._hopeless:
            return ExitCode.USAGE
        if self._hurried:
            return ExitCode.INTERRUPTED
        return ExitCode.FAILED if any(self._codes) else ExitCode.OK

    async def _keep(self, slot: int) -> None:
        failures = 0
        while not self._stopping.is_set():
            changed = self._changed
            started_s = time.monotonic()
            child = self._children[slot] = await Child.started(self._command(slot))
            if self._stopping.is_set():
                child.let_go()
            code = await self._ended(child)
            del self._children[slot]
            child.let_go()
            if self._stopping.is_set():
                self._codes.append(code)
            elif changed.is_set():
                failures = 0
            elif code == ExitCode.USAGE and self._changes is None:
                self._hopeless = True
                self._stop()
            else:
                failures = 1 if time.monotonic() - started_s > _SETTLED_S else failures + 1
                await self._pause(child.pid, code, failures, changed)

    async def _ended(self, child: Child) -> int:
        """Its exit code. Told to stop, it has its grace, and a little more."""
        ended = asyncio.create_task(child.process.wait())
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait({ended, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        patience_s = self._plan.grace.total_seconds() + _PATIENCE_S
        done, _ = await asyncio.wait({ended}, timeout=patience_s)
        if not done:
            _log.error("process %d does not end: killing it", child.pid)
            child.process.kill()
        return await ended

    async def _pause(self, pid: int, code: int, failures: int, changed: asyncio.Event) -> None:
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        if code == ExitCode.USAGE:  # only while reloading: nothing gets better before the next change
            _log.error("process %d %s; waiting for a change", pid, how)
            await self._either(changed, None)
            return
        pause_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(failures - 1, 10))
        _log.error("process %d %s; starting another in %g s", pid, how, pause_s)
        await self._either(changed, pause_s)

    async def _either(self, changed: asyncio.Event, seconds: float | None) -> None:
        """Until stopped, changed, or the time is over."""
        waits = [asyncio.create_task(event.wait()) for event in (self._stopping, changed)]
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in waits:
            task.cancel()

    async def _watch(self) -> None:
        assert self._changes is not None  # noqa: S101 - for the type checker
        async for changes in self._changes:
            _log.info("%s changed: starting again", ", ".join(sorted({Path(path).name for _, path in changes})))
            self._changed.set()
            self._changed = asyncio.Event()
            self._let_go()

    def _told(self, name: str) -> None:
        if self._stopping.is_set():
            _log.warning("%s again: ending at once", name)
            self._hurried = True
            for child in self._children.values():
                with contextlib.suppress(ProcessLookupError):
                    child.process.kill()
            return
        _log.info("%s: stopping %d processes", name, len(self._children))
        self._stop()

    def _stop(self) -> None:
        self._stopping.set()
        self._let_go()

    def _let_go(self) -> None:
        for child in self._children.values():
            child.let_go()

    def _command(self, slot: int) -> list[str]:
        """The same command, for one process; its metrics have a port of their own."""
        port = self._plan.metrics_port
        own = ["--metrics-port", str(port + slot)] if port else []
        return [sys.executable, "-m", "tarry", *self._words, *own]
