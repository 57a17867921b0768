# pyright: basic
"""A sink that fails on purpose, for Spark's workers to import: `format("faulty").option("fault", …)`."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import psutil
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from tarry.edges.spark.sink.writer import SinkMessage, TarrySink, TarryStreamSink

FAULTS = {
    "crash": "three of four tasks fail once after their work, one in three of those twice",
    "hopeless": "three of four tasks always fail after their work",
    "die": "the driver ends between staging and commit: there is no commit and no abort",
    "kill before commit": "driver and JVM are killed with -9 when everything is staged",
    "kill after commit": "driver and JVM are killed with -9 when everything is merged",
    "straggle": "the first try of the first task works, and then does not come to an end",
    "kill executor": "the first try of the first task works, and then takes its whole executor down",
}
LONG_S = 120.0


def after_work(fault: str) -> None:
    task = TaskContext.get()
    assert task is not None
    part, attempt = task.partitionId(), task.attemptNumber()
    if fault == "crash" and attempt < (0 if part % 4 == 3 else 2 if part % 4 == 0 else 1):
        raise RuntimeError(f"part {part} crashes at attempt {attempt}")
    if fault == "hopeless" and part % 4 != 3:
        raise RuntimeError(f"part {part} always crashes")
    if fault == "straggle" and (part, attempt) == (0, 0):
        time.sleep(LONG_S)
    if fault == "kill executor" and (part, attempt) == (0, 0):
        java = next(parent for parent in psutil.Process().parents() if "java" in parent.name())
        java.send_signal(signal.SIGKILL)
        time.sleep(LONG_S)


def kill_session() -> None:
    """Everything that the driver's program has started, and the program itself, at once."""
    session = os.getsid(0)
    others = [pid for pid in psutil.pids() if pid != os.getpid() and _session_of(pid) == session]
    for pid in others:
        os.kill(pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


class FaultySink(TarrySink):
    def __init__(self, fault: str, options: dict[str, str], schema: StructType) -> None:
        super().__init__(options, schema)
        self._fault = fault

    def write(self, iterator: Any) -> SinkMessage:
        message = super().write(iterator)
        after_work(self._fault)
        return message

    def commit(self, messages: Any) -> None:
        if self._fault == "kill before commit":
            kill_session()
        if self._fault != "die":
            super().commit(messages)
        if self._fault == "kill after commit":
            kill_session()


class FaultyStreamSink(TarryStreamSink):
    def write(self, iterator: Any) -> SinkMessage:
        message = super().write(iterator)
        after_work("crash")
        return message


class FaultySource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "faulty"

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        fault = self.options["fault"]
        assert fault in FAULTS
        return FaultySink(fault, {name: value for name, value in self.options.items() if name != "fault"}, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802
        return FaultyStreamSink(self.options, schema)


def main(master: str, dsn: str, fault: str, rows: str, commit: str = "write") -> None:
    """A program that writes numbered rows as write `w`: one driver, for tests that kill it."""
    from pyspark.sql import functions as F  # noqa: N812

    from tarry.edges.spark.session import session
    from tarry.edges.spark.source.reader import register

    speculation = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.minTaskRuntime": "500ms",
        "spark.executor.memory": "512m",
    }
    spark = session(master, {"spark.driver.memory": "512m", **(speculation if fault == "straggle" else {})})
    register(spark)
    spark.dataSource.register(FaultySource)
    frame = spark.range(0, int(rows), 1, 6).select(
        F.concat(F.lit("k"), F.col("id")).alias("key"), F.struct(F.col("id").alias("n")).alias("payload")
    )
    faulty = {"fault": fault} if fault != "none" else {}
    options = {"dsn": dsn, "queue": "q", "write_id": "w", "commit": commit, **faulty}
    frame.write.format("faulty" if faulty else "tarry").options(**options).mode("append").save()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
