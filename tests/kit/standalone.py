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

import psutil

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


class Cluster:
    """A master and one worker with one core on each host. Spark tries a straggler again on another host only."""

    def __init__(self, directory: Path, hosts: Sequence[str], stack: ExitStack) -> None:
        self._directory, self._stack = directory, stack
        self._environ = _environ(directory)
        self._started = 0
        _, logged = stack.enter_context(_started(_part("master.Master", "127.0.0.1", "--port", "0"), self._environ))
        self.url = "spark://" + _logged(logged, "Starting Spark master at").rpartition("spark://")[2].strip()
        self._workers = {host: self._worker(host) for host in hosts}

    def executors(self) -> list[psutil.Process]:
        return [child for worker in self._workers.values() for child in _javas(worker)]

    def python_workers(self) -> list[psutil.Process]:
        """Those that run tasks, not the daemons that fork them."""
        daemons = [child for executor in self.executors() for child in executor.children()]
        return [child for daemon in daemons for child in daemon.children()]

    def kill_worker(self, host: str) -> None:
        """Kill -9 of a worker, which takes its executors with it; another takes its place."""
        self._workers[host].kill()
        self._workers[host] = self._worker(host)

    def connect_server(self, port: int) -> str:
        """A Spark Connect server whose application is this cluster's; its address."""
        server = ("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", self.url)
        settings = (f"spark.connect.grpc.binding.port={port}", "spark.executor.memory=640m")
        configured = (text for setting in settings for text in ("--conf", setting))
        environ = {**self._environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "1g"}
        command = ["org.apache.spark.deploy.SparkSubmit", *server, *configured]
        _, logged = self._stack.enter_context(_started(command, environ))
        _logged(logged, "Spark Connect server started")
        return f"sc://127.0.0.1:{port}"

    def _worker(self, host: str) -> psutil.Process:
        """With directories of its own, also for temporary files."""
        self._started += 1
        own = self._directory / f"worker-{self._started}"
        own.mkdir()
        size = ("--cores", "1", "--memory", "1g", "-d", str(own / "work"))
        command = [*_part("worker.Worker", host, *size), self.url]
        environ = {**self._environ, "SPARK_LOCAL_DIRS": str(own / "local"), "TMPDIR": str(own)}
        process, logged = self._stack.enter_context(_started(command, environ))
        _logged(logged, "Successfully registered with master")
        return psutil.Process(process.pid)


@contextmanager
def cluster(directory: Path, hosts: Sequence[str] = ("127.0.0.1", "127.0.0.2")) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(directory, hosts, stack)


def _environ(directory: Path) -> dict[str, str]:
    from tarry.edges.spark.session import java_home

    conf = directory / "conf"
    conf.mkdir()
    (conf / "log4j2.properties").write_text(_LOGGING)
    return {
        **os.environ,
        "JAVA_HOME": java_home(os.environ),
        "SPARK_CONF_DIR": str(conf),
        "SPARK_DAEMON_MEMORY": "384m",
        "PYSPARK_PYTHON": sys.executable,
        # Executors inherit it from their worker, and must run the code that is tested.
        "PYTHONPATH": os.pathsep.join(sys.path),
    }


def _javas(process: psutil.Process) -> list[psutil.Process]:
    try:
        return [child for child in process.children() if child.name() == "java"]
    except psutil.NoSuchProcess:
        return []


def _part(name: str, host: str, *more: str) -> list[str]:
    return [f"org.apache.spark.deploy.{name}", "--host", host, "--webui-port", "0", *more]


@contextmanager
def _started(
    arguments: Sequence[str], environ: dict[str, str]
) -> Iterator[tuple[subprocess.Popen[str], SimpleQueue[str | None]]]:
    """The process, and what it logs, line by line; None when it has ended. Read to the end: a full pipe would block it."""
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
        yield process, lines
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
