"""Supervisor of worker processes: starts, restarts and stops them, and reloads them when code changes."""

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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tarry.core.extras import needs_extra
from tarry.edges.cli.exit_codes import ExitCode
from tarry.edges.cli.processes.worker import WorkerProcess
from tarry.edges.env import WORKER_PARENT

_log = logging.getLogger("tarry.worker")
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0
_SETTLED_S = 60.0
"""A process that ran this long did not fail at startup: the back-off is reset."""
_KILL_AFTER_S = 5.0
"""Time after the grace before a process that does not exit is killed."""


def changes_below(folder: Path) -> AsyncIterator[Any]:
    """Yield changes to Python files."""
    with needs_extra("reload", "--reload"):
        from watchfiles import PythonFilter, awatch  # pyright: ignore[reportUnknownVariableType] - it lacks a stub
    return awatch(folder, watch_filter=PythonFilter(), debounce=300)


@dataclass(slots=True)
class Child:
    """A process that stops when its pipe is closed, by the supervisor or because the supervisor exited.

    No signal is used: a service manager may signal every process, and a second signal means an immediate exit.
    """

    process: Process
    pipe: int | None

    @classmethod
    async def started(cls, command: Sequence[str], log: int | None = None) -> Child:
        """Start a process. `log`: a descriptor for its output; None: the output of this process."""
        readable, pipe = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                env={**os.environ, WORKER_PARENT: str(readable)},
                pass_fds=[readable],
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C reaches the supervisor only
            )
        finally:
            os.close(readable)
        return cls(process, pipe)

    def stop(self) -> None:
        if self.pipe is not None:
            os.close(self.pipe)
            self.pipe = None


class WorkerSupervisor:
    def __init__(self, worker: WorkerProcess, args: Sequence[str], changes: AsyncIterator[Any] | None = None) -> None:
        """`args`: the command line, passed to every process."""
        self._worker = worker
        self._args = [arg for arg in args if arg != "--reload"]
        self._changes = changes
        self._children: dict[int, Child] = {}
        self._codes: list[int] = []
        self._stopping = asyncio.Event()
        self._changed = asyncio.Event()
        """Set by a stop, and by a change, which replaces it."""
        self._killed = False
        self._is_invalid = False

    async def run(self) -> ExitCode:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._handle_signal, number.name)
        watching = asyncio.create_task(self._watch()) if self._changes is not None else None
        await asyncio.gather(*map(self._supervise, range(self._worker.settings.processes)))
        if watching is not None:
            watching.cancel()
            await asyncio.wait([watching])
        if self._is_invalid:
            return ExitCode.USAGE
        if self._killed:
            return ExitCode.INTERRUPTED
        return ExitCode.FAILED if any(self._codes) else ExitCode.OK

    async def _supervise(self, slot: int) -> None:
        failures = 0
        while not self._stopping.is_set():
            changed = self._changed
            started_s = time.monotonic()
            child = self._children[slot] = await Child.started(self._command(slot))
            if self._stopping.is_set():
                child.stop()
            code = await self._ended(child)
            del self._children[slot]
            child.stop()
            if self._stopping.is_set():
                self._codes.append(code)
            elif changed.is_set():
                failures = 0
            elif code == ExitCode.OK:
                _log.info("process %d has drained, and is not started again", child.process.pid)
                self._codes.append(code)
                return
            elif code == ExitCode.USAGE and self._changes is None:
                self._is_invalid = True
                self._stop()
            else:
                failures = 1 if time.monotonic() - started_s > _SETTLED_S else failures + 1
                await self._pause(child.process.pid, code, failures, changed)

    async def _ended(self, child: Child) -> int:
        """Wait for the exit code. After a stop the process gets the grace and a little more, then it is killed."""
        ended = asyncio.create_task(child.process.wait())
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait({ended, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        timeout_s = self._worker.settings.grace.total_seconds() + _KILL_AFTER_S
        done, _ = await asyncio.wait({ended}, timeout=timeout_s)
        if not done:
            _log.error("process %d does not stop: killing it", child.process.pid)
            child.process.kill()
        return await ended

    async def _pause(self, pid: int, code: int, failures: int, changed: asyncio.Event) -> None:
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        if code == ExitCode.USAGE:  # only with --reload: a restart cannot help before the next change
            _log.error("process %d %s; waiting for a change", pid, how)
            await changed.wait()
            return
        pause_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(failures - 1, 10))
        _log.error("process %d %s; starting another in %g s", pid, how, pause_s)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await changed.wait()

    async def _watch(self) -> None:
        assert self._changes is not None  # noqa: S101 - for the type checker
        async for changes in self._changes:
            _log.info("%s changed: restarting", ", ".join(sorted({Path(path).name for _, path in changes})))
            self._changed.set()
            self._changed = asyncio.Event()
            self._stop_children()

    def _handle_signal(self, name: str) -> None:
        if self._stopping.is_set():
            _log.warning("%s again: ending at once", name)
            self._killed = True
            for child in self._children.values():
                with contextlib.suppress(ProcessLookupError):
                    child.process.kill()
            return
        _log.info("%s: stopping %d processes", name, len(self._children))
        self._stop()

    def _stop(self) -> None:
        self._stopping.set()
        self._changed.set()
        self._stop_children()

    def _stop_children(self) -> None:
        for child in self._children.values():
            child.stop()

    def _command(self, slot: int) -> list[str]:
        """The command line of one process, with its own metrics port."""
        port = self._worker.probes.port
        own = ["--metrics-port", str(port + slot)] if port else []
        return [sys.executable, "-m", "tarry", *self._args, *own]
