"""`WorkersRole` on PostgreSQL."""

import builtins
from dataclasses import asdict

from tarry.core.workers.model import KEPT_FOR, RunningWorker, WorkerReport
from tarry.storage.postgres.arrays import TextArray
from tarry.storage.postgres.operation import PostgresOperation, PostgresRole
from tarry.storage.postgres.statement import Row, each, value


class PostgresWorkers(PostgresRole):
    def report(self, worker: WorkerReport) -> PostgresOperation[bool]:
        params = asdict(worker) | {"queues": TextArray(worker.queues), "kept_for": KEPT_FOR}
        return self._sql("workers/report", value, **params)

    def leave(self, id: str) -> PostgresOperation[None]:
        return self._sql("workers/leave", lambda rows: None, id=id)

    def list(self) -> PostgresOperation[builtins.list[RunningWorker]]:
        return self._sql("workers/list", each(_worker), kept_for=KEPT_FOR)

    def drain(self, consumer: str) -> PostgresOperation[int]:
        return self._sql("workers/drain", value, consumer=consumer, kept_for=KEPT_FOR)


def _worker(row: Row) -> RunningWorker:
    return RunningWorker(**row._asdict() | {"queues": tuple(row.queues)})
