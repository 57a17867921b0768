"""`WorkersRole` on PostgreSQL."""

import builtins
from dataclasses import asdict
from datetime import datetime

from tarry.core.workers.model import (
    KEPT_FOR,
    RELEASE_NOTED_EVERY,
    RELEASES_KEPT_FOR,
    RunningWorker,
    WorkerRelease,
    WorkerReport,
)
from tarry.storage.postgres.arrays import TextArray
from tarry.storage.postgres.operation import PostgresOperation, PostgresRole
from tarry.storage.postgres.statement import each, made, no_result, value


class PostgresWorkers(PostgresRole):
    def report(self, worker: WorkerReport) -> PostgresOperation[bool]:
        kept = {"kept_for": KEPT_FOR, "releases_kept_for": RELEASES_KEPT_FOR, "noted_every": RELEASE_NOTED_EVERY}
        return self._sql("workers/report", value, **asdict(worker) | {"queues": TextArray(worker.queues)} | kept)

    def leave(self, id: str) -> PostgresOperation[None]:
        return self._sql("workers/leave", no_result, id=id)

    def list(self) -> PostgresOperation[builtins.list[RunningWorker]]:
        return self._sql("workers/list", each(made(RunningWorker)), kept_for=KEPT_FOR)

    def releases(self, since: datetime) -> PostgresOperation[builtins.list[WorkerRelease]]:
        return self._sql("workers/releases", each(made(WorkerRelease)), since=since)

    def drain(self, consumer: str) -> PostgresOperation[int]:
        return self._sql("workers/drain", value, consumer=consumer, kept_for=KEPT_FOR)
