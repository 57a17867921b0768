"""A standalone Spark cluster of this machine: a master and workers, each with a process and an address of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import SimpleQueue

TIMEOUT_S = 120.0

# At INFO the log has a line when a worker has registered; the default profile may be quieter.
_LOGGING = """
rootLogger.level = info
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %c{1}: %m%n
"""


@contextmanager
def standalone(directory: Path, hosts: Sequence[str] = ("127.0.0.1", "127.0.0.2")) -> Iterator[str]:
    """The master's URL; one worker with one core on each host. Spark tries a straggler again on another host only."""
    from tarry.edges.spark.session import java_home

    conf = directory / "conf"
    conf.mkdir()
    (conf / "log4j2.properties").write_text(_LOGGING)
    environ = {
        **os.environ,
        "JAVA_HOME": java_home(os.environ),
        "SPARK_CONF_DIR": str(conf),
        "SPARK_DAEMON_MEMORY": "384m",
        "PYSPARK_PYTHON": sys.executable,
        # Executors inherit it from their worker, and must run the code that is tested.
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    with ExitStack() as stack:
        master = _part("master.Master", "127.0.0.1", "--port", "0")
        head = stack.enter_context(_started(master, environ))
        url = "spark://" + _logged(head, "Starting Spark master at").rpartition("spark://")[2].strip()
        for number, host in enumerate(hosts):
            size = ("--cores", "1", "--memory", "1g", "-d", str(directory / f"worker-{number}"))
            worker = stack.enter_context(_started([*_part("worker.Worker", host, *size), url], environ))
            _logged(worker, "Successfully registered with master")
        yield url


def _part(name: str, host: str, *more: str) -> list[str]:
    return [f"org.apache.spark.deploy.{name}", "--host", host, "--webui-port", "0", *more]


@contextmanager
def _started(arguments: Sequence[str], environ: dict[str, str]) -> Iterator[SimpleQueue[str | None]]:
    """What it logs, line by line; None when it has ended. Read to the end: a full pipe would block the process."""
    import pyspark

    program = Path(next(iter(pyspark.__path__)), "bin", "spark-class")
    process = subprocess.Popen(
        [str(program), *arguments], env=environ, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    lines: SimpleQueue[str | None] = SimpleQueue()

    def read() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            lines.put(line)
        lines.put(None)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        yield lines
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)
        reader.join(TIMEOUT_S)
        assert process.stderr is not None
        process.stderr.close()


def _logged(lines: SimpleQueue[str | None], words: str) -> str:
    """Wait for the line with these words."""
    before: list[str] = []
    while (line := lines.get(timeout=TIMEOUT_S)) is not None:
        if words in line:
            return line
        before.append(line)
    raise AssertionError(f"it ended without logging {words!r}: {''.join(before)[-2000:]}")
