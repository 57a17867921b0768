"""The port of running workers."""

import builtins
from datetime import datetime
from typing import Protocol

from tarry.core.operation import Operation
from tarry.core.workers.model import RunningWorker, WorkerRelease, WorkerReport


class WorkersRole(Protocol):
    """Which workers run. Nothing depends on it: what a crash of the store loses is there again after the next reports."""

    def report(self, worker: WorkerReport) -> Operation[bool]:
        """Store what a worker reports; returns whether it is to drain."""
        ...

    def leave(self, id: str) -> Operation[None]:
        """A worker has ended."""
        ...

    def list(self) -> Operation[builtins.list[RunningWorker]]:
        """By consumer. Those that have not reported for `KEPT_FOR` are left out."""
        ...

    def releases(self, since: datetime) -> Operation[builtins.list[WorkerRelease]]:
        """Which releases consumers ran since then, up to `RELEASES_KEPT_FOR` ago; the latest ones of very many."""
        ...

    def drain(self, consumer: str) -> Operation[int]:
        """Let the workers of this name finish what they have, and end, after their next report; returns how many."""
        ...
