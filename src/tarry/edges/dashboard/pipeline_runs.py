"""Jobs of the pipeline that an administrator starts from the dashboard: each is a process of its own, with its own Spark."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import signal
import sys
from datetime import date
from importlib.util import find_spec
from pathlib import Path

from tarry.core.errors import InvalidState
from tarry.edges.secrets import without_secrets

RERUN = ("archive", "facts", "metrics", "consumers", "forecast", "compact", "verify")
"""Jobs that need nothing but their lake. Anomalies depend on the operator's detectors and calendar, and pruning deletes."""
WINDOWED = ("metrics", "consumers")
"""Jobs whose results of past days can be published again. The archive has every event exactly once: nothing to repeat."""
_log = logging.getLogger("tarry.http")


class PipelineRuns:
    """At most one at a time. A run records its result itself; it ends with this server, and the next one continues it."""

    def __init__(self, dsn: str | None) -> None:
        self._dsn = dsn
        self._running: tuple[str, asyncio.subprocess.Process] | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def job(self) -> str | None:
        """The one that runs."""
        return None if self._running is None else self._running[0]

    def why_not(self, job: str, lake: str | None) -> str | None:
        """Why this server cannot run a job again; None: it can."""
        if job not in RERUN:
            return f"{job} is run where its options are known: copy the command"
        if self._dsn is None or find_spec("pyspark") is None:
            return "this server has no Spark: run the command where the pipeline runs, or install tarry[spark] here"
        if lake is None:
            return "it has not run yet, so its lake is not known"
        if "://" not in lake and not Path(lake).is_dir():
            return f"its lake {lake} is not on this server: run the command where the pipeline runs"
        return f"{self.job} is running" if self.job else None

    async def start(self, job: str, lake: str | None, days: tuple[date, date] | None = None) -> None:
        """`lake`: where the job ran before. `days`: the first and the last of those whose results are published again."""
        if reason := self.why_not(job, lake):
            raise InvalidState(f"{job} was not started: {reason}")
        words = ["verify"] if job == "verify" else ["pipeline", job]
        words += [] if days is None else ["--since", str(days[0]), "--until", str(days[1])]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "tarry", *words, "--lake", lake or ""),
            env={**os.environ, "TARRY_DSN": self._dsn or ""},  # not an argument, which other users of the machine see
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        self._running = job, process
        self._task = asyncio.create_task(self._wait(job, process), name="tarry-pipeline-run")

    async def _wait(self, job: str, process: asyncio.subprocess.Process) -> None:
        def end() -> None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)

        atexit.register(end)
        try:
            _, errors = await process.communicate()
            if process.returncode:
                lines = without_secrets(errors.decode(errors="replace")).strip().splitlines()
                _log.warning("%s of the pipeline ended with %d: %s", job, process.returncode, " ".join(lines[-3:]))
        finally:
            self._running = None
            if process.returncode is not None:
                atexit.unregister(end)
