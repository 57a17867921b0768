"""The port for running workers."""

import builtins
from datetime import datetime
from typing import Protocol

from tarry.core.operation import Operation
from tarry.core.workers.model import RunningWorker, WorkerRelease, WorkerReport


class WorkersRole(Protocol):
    """The list of running workers. Nothing depends on it: after a crash of the store, the next reports restore it."""

    def report(self, worker: WorkerReport) -> Operation[bool]:
        """Store a worker's report; returns whether the worker should drain."""
        ...

    def leave(self, id: str) -> Operation[None]: ...
    def list(self) -> Operation[builtins.list[RunningWorker]]:
        """Sorted by consumer, without workers that have not reported for `KEPT_FOR`."""
        ...

    def releases(self, since: datetime) -> Operation[builtins.list[WorkerRelease]]:
        """Releases that consumers ran since then, at most `RELEASES_KEPT_FOR` ago; only the latest if there are very many."""
        ...

    def drain(self, consumer: str) -> Operation[int]:
        """Request that the workers of this name finish their messages and stop, at their next report; returns how many."""
        ...
