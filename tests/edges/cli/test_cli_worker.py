"""tarry worker: problems are reported at once, in one line."""

from __future__ import annotations

import logging
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

import tarry
from tarry.core.errors import TarryError
from tarry.edges.cli.exit_codes import ExitCode, Usage
from tarry.edges.cli.processes.supervisor import changes_below
from tarry.edges.cli.processes.worker import WorkerProcess
from tarry.services.worker.worker import WorkerSettings
from tests.edges.conftest import Run

GOOD = "import tarry\nworker = tarry.Worker()\n@worker.handler('orders')\ndef handle(order: int) -> None: ...\n"


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("good", "empty", "misses", "broken"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "empty.py").write_text("import tarry\nworker = tarry.Worker()\nother = 5\n")
    (tmp_path / "misses.py").write_text("import no_such_library\n")
    (tmp_path / "broken.py").write_text("def\n")
    log = logging.getLogger("tarry")
    monkeypatch.setattr(log, "handlers", list(log.handlers))
    monkeypatch.setattr(log, "propagate", True)
    monkeypatch.setattr(log, "level", log.level)


def test_a_worker_process_collects_garbage_less_often_than_it_has_jobs_running() -> None:
    """256 at once, of 20 objects that the collector knows. In a process of its own, whose collector it may set."""
    code = (
        "import gc; from tarry.edges.cli.processes.worker import collect_rarely; collect_rarely();"
        "before = gc.get_stats(); jobs = [[] for _ in range(20 * 256)];"
        "print(gc.get_stats() == before, gc.get_freeze_count() > 1_000)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]


def test_a_worker_is_found_in_the_current_folder() -> None:
    assert WorkerProcess("good:worker", WorkerSettings()).load().queues == ("orders",)


@pytest.mark.parametrize(
    ("target", "problem", "hint"),
    [
        ("good", "the target must be module:worker", "tarry worker shop.tasks:worker"),
        ("nowhere:worker", "there is no module nowhere", "searched in"),
        ("good.deeper:worker", "there is no module good.deeper", ""),
        ("./shop/tasks.py:worker", "a module, not a file", "write shop.tasks:worker"),
        ("misses:worker", "module misses cannot be imported: ModuleNotFoundError", "--debug"),
        ("broken:worker", "module broken cannot be imported: SyntaxError", "--debug"),
        ("good:handle", "good:handle is a function, not a tarry.Worker", "there is good:worker"),
        ("empty:nothing", "empty:nothing does not exist", "there is empty:worker"),
    ],
)
def test_a_target_that_is_none(target: str, problem: str, hint: str) -> None:
    with pytest.raises(Usage) as raised:
        WorkerProcess(target, WorkerSettings()).load()
    assert problem in str(raised.value)
    assert hint in (raised.value.hint or "")


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (("empty:worker",), "this worker has no handlers"),
        (("good:worker", "--queues", "mails"), "no handler of this worker is for mails"),
        (("good:worker", "--queues", ""), "queues names no queue"),
        (("good:worker", "--grace", "soon"), "--grace is not a duration"),
        (("good:worker", "-c", "0"), "greater than or equal to 1"),
        (("nowhere:worker", "--processes", "3"), "there is no module nowhere"),
        (("good:worker", "--processes", "3", "--metrics-port", "65534"), "3 processes need the ports 65534 to 65536"),
    ],
)
def test_what_cannot_work_is_a_usage_error(run: Run, args: tuple[str, ...], problem: str) -> None:
    ran = run("worker", *args)
    assert ran.code == ExitCode.USAGE
    assert problem in ran.err


def test_reload_without_its_library_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    with pytest.raises(TarryError, match="--reload needs watchfiles") as raised:
        changes_below(Path.cwd())
    assert raised.value.hint == "pip install 'tarry[reload]'"


def test_metrics_without_their_library_name_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from tarry.telemetry import Metrics

    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(TarryError, match="a metric needs prometheus_client"):
        Metrics(WorkerProcess("good:worker", WorkerSettings()).load())


def test_without_that_library_the_probes_are_served(process: Callable[..., subprocess.Popen[bytes]]) -> None:
    Path("prometheus_client.py").write_text(
        "raise ModuleNotFoundError('as if it were missing', name='prometheus_client')\n"
    )
    started = process("worker", "good:worker", "--metrics-port", "0")
    assert started.stderr is not None
    log, url = "", None
    while url is None and (line := started.stderr.readline().decode()):
        log, url = log + line, re.search(r"http://\S+:\d+", line)
    assert log.count("pip install 'tarry[telemetry]'") == 1, log
    assert url is not None, log
    with urllib.request.urlopen(f"{url[0]}/readyz", timeout=30) as response:
        assert response.status == 200
    with pytest.raises(urllib.error.HTTPError, match="404") as refused:
        urllib.request.urlopen(f"{url[0]}/metrics", timeout=30)
    refused.value.close()


def test_a_new_database_is_announced_once_by_all_processes(process: Callable[..., subprocess.Popen[bytes]]) -> None:
    """In a directory that cannot be made: it is new to each of them."""
    Path("file").touch()
    home = {"TARRY_DSN": "", "TARRY_HOME": str(Path("file", "home").absolute())}
    started = process("worker", "good:worker", "--processes", "2", env=home)
    assert started.stderr is not None
    log = ""
    while log.count("cannot be used") < 2 and (line := started.stderr.readline().decode()):
        log += line
    started.send_signal(signal.SIGTERM)
    log += started.stderr.read().decode()
    assert started.wait() != 0
    assert log.count("cannot be used") >= 2, log
    assert log.count("database was named") == 1, log


def test_once_handles_what_is_due_and_exits(process: Callable[..., subprocess.Popen[bytes]], database: str) -> None:
    with tarry.connect(database) as app:
        app.queue("orders").offer_many([tarry.Message(key=f"o-{i}", payload=i) for i in range(5)])
        ended = process("worker", "good:worker", "--once")
        _, log = ended.communicate(timeout=60)
        assert (ended.returncode, b"stopped: 5 acked" in log) == (0, True), log
        assert app.queue("orders").try_poll() is None


def test_once_prints_what_is_retried_and_what_is_dead(
    process: Callable[..., subprocess.Popen[bytes]], database: str
) -> None:
    Path("bad.py").write_text(
        "import tarry\nworker = tarry.Worker()\n@worker.handler('orders')\ndef fail(n: int) -> None:\n    1 / n\n"
    )
    with tarry.connect(database) as app:
        orders = app.queue("orders")
        orders.offer("dies", 0, max_attempts=1)
        orders.offer("fails", 0)
        orders.offer("works", 1)
    ended = process("worker", "bad:worker", "--once")
    _, log = ended.communicate(timeout=60)
    assert ended.returncode == 0
    assert b"stopped: 1 acked, 2 failed: 1 to be retried, 1 dead;" in log, log


def test_an_empty_list_of_workers_names_the_command_that_starts_one(cli: Run) -> None:
    assert "tarry worker MODULE:WORKER" in cli("consumer", "list").err


def test_once_is_for_one_process(run: Run) -> None:
    assert run("worker", "good:worker", "--once", "--processes", "2").code == ExitCode.USAGE
