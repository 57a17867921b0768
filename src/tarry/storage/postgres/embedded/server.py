"""Join the embedded server of a data directory, launching its supervisor if none runs."""

import fcntl
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from urllib.parse import quote

from tarry.core.errors import EmbeddedError

from .home import Binaries, Environment, check_major, claim, default_home, find_binaries, read_environment
from .supervisor.layout import (
    BUSY,
    DATABASE,
    FAILED,
    PAUSE_FOR,
    PORT,
    PROBE,
    READY,
    SUPERUSER,
    Layout,
    ServerState,
    acquire,
    open_lock,
    read_state,
    socket_file,
)

# Long, because PostgreSQL may have to replay a gigabyte of WAL after a power failure.
START_FOR = 300.0
# A file, not `-m tarry…`, which would load the whole package and its driver into a process that lives for days.
ENTRY = Path(__file__).parent / "supervisor" / "__main__.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedSettings:
    """The location of the data, and the binaries to run.

    `data_dir` absent means `postgres-<major>` in `$TARRY_HOME`, or in the user's data directory. `binaries` is "18" or
    "16" (from the wheel), "system" (the newest installed), or the path of a bin directory.
    """

    data_dir: Path | None = None
    binaries: str = "18"


DEFAULTS = EmbeddedSettings()


@dataclass(slots=True, kw_only=True, eq=False)
class Embedded:
    """A process's claim on a running server. If the object is dropped, the claim lasts until the process ends."""

    users_lock: int | None = field(repr=False)
    data_dir: Path
    major: int
    dsn: str

    def close(self) -> None:
        """Release the claim. The server stops by itself shortly after the last process has released it."""
        users_lock, self.users_lock = self.users_lock, None
        if users_lock is not None:
            # Closed, not unlocked: a forked child that still uses the server shares the lock and keeps it.
            os.close(users_lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def start(settings: EmbeddedSettings = DEFAULTS) -> Embedded:
    """Block until the server accepts connections: milliseconds if it runs, a second or two for the first start ever."""
    environment = read_environment()
    binaries = find_binaries(settings.binaries, environment.search_path)
    layout = claim(_home(settings, environment, binaries).resolve())
    try:
        users_lock, state = _enter(layout, binaries, environment, time.monotonic() + START_FOR)
    except OSError as error:
        raise EmbeddedError(
            f"The data directory {layout.home} cannot be used: {error}. Check the owner and the permissions of its files."
        ) from error
    # An explicit port, because PGPORT would apply otherwise.
    host = quote(os.fsencode(state.socket_dir), safe="")
    dsn = f"postgresql://{SUPERUSER}@/{DATABASE}?host={host}&port={PORT}"
    return Embedded(users_lock=users_lock, data_dir=layout.home, major=binaries.major, dsn=dsn)


def missing_home() -> Path | None:
    """The directory in which `start` will create a database, or None if it has one."""
    environment = read_environment()
    home = _home(DEFAULTS, environment, find_binaries(DEFAULTS.binaries, environment.search_path))
    return None if Layout(home).pgdata.exists() else home


def _home(settings: EmbeddedSettings, environment: Environment, binaries: Binaries) -> Path:
    return settings.data_dir or default_home(
        environment, binaries.major, namespaces=lambda: namespaces_allowed(environment.inherited)
    )


def namespaces_allowed(environment: Mapping[str, str]) -> bool:
    """Whether this user may enter a user namespace. Tested in a separate process, because it cannot be undone."""
    with _popen([PROBE], environment) as process:
        process.communicate()
    return process.returncode == 0


def _enter(layout: Layout, binaries: Binaries, environment: Environment, deadline: float) -> tuple[int, ServerState]:
    """Join or start the server under the startup lock: no other process can start or stop it meanwhile."""
    startup_lock = open_lock(layout.startup_lock)
    users_lock: int | None = None
    try:
        if not acquire(startup_lock, fcntl.LOCK_EX, deadline=deadline):
            raise EmbeddedError(
                f"Another process has been starting or stopping PostgreSQL in {layout.home} for {START_FOR:.0f} s. "
                f"See {layout.log}."
            )
        users_lock = open_lock(layout.users_lock)
        # Contended only for the instant in which the supervisor detects that no process uses the server.
        if not acquire(users_lock, fcntl.LOCK_SH, deadline=deadline):
            raise EmbeddedError(
                f"Another process keeps {layout.users_lock} locked. Find it with fuser {layout.users_lock} and stop it."
            )
        check_major(layout, binaries.major)
        return users_lock, _ensure_running(layout, binaries, environment, deadline)
    except BaseException:
        if users_lock is not None:
            os.close(users_lock)
        raise
    finally:
        os.close(startup_lock)


def _ensure_running(layout: Layout, binaries: Binaries, environment: Environment, deadline: float) -> ServerState:
    supervisor_lock = open_lock(layout.supervisor_lock)
    argv = [str(layout.home), str(binaries.folder), str(binaries.major), str(environment.runtime_dir or "")]
    try:
        while True:
            if acquire(supervisor_lock, fcntl.LOCK_EX, deadline=0):
                # No supervisor is alive. The state of the last one is stale, and may be removed only while this lock is
                # held.
                layout.state.unlink(missing_ok=True)
                fcntl.flock(supervisor_lock, fcntl.LOCK_UN)
                _launch(layout, argv, environment.inherited, deadline)
            state = read_state(layout)
            if state is not None and _listens(state):
                return state
            if time.monotonic() > deadline:
                raise EmbeddedError(
                    f"PostgreSQL in {layout.home} runs but does not accept connections. See {layout.log}."
                )
            # Reached only while a supervisor works for a process that has died, or restarts a crashed server.
            time.sleep(PAUSE_FOR)
    finally:
        os.close(supervisor_lock)


def _listens(state: ServerState) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(str(socket_file(state.socket_dir))) == 0


def _launch(layout: Layout, argv: list[str], environment: Mapping[str, str], deadline: float) -> None:
    """Return when a server is ready or another process is about to start it; raise if the start failed."""
    with _popen(argv, environment) as process:
        try:
            report = process.communicate(timeout=max(0.0, deadline - time.monotonic()))[0].decode(errors="replace")
        except subprocess.TimeoutExpired:
            raise EmbeddedError(
                f"PostgreSQL in {layout.home} was not ready in {START_FOR:.0f} s. It may be replaying its log after a "
                f"crash: see {layout.log}, and try again."
            ) from None
    verdict, _, message = report.partition("\n")
    if verdict == FAILED:
        raise EmbeddedError(message.strip())
    if verdict not in (READY, BUSY):
        raise EmbeddedError(f"The supervisor of PostgreSQL ended without a report. Its output: {report.strip()!r}")


def _popen(argv: list[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # noqa: S603
            [sys.executable, "-I", "-S", str(ENTRY), *argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd="/",
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        raise EmbeddedError(
            f"sys.executable, {sys.executable!r}, does not start ({error}), and the supervisor of PostgreSQL needs a "
            "Python interpreter. Set TARRY_DSN to another server."
        ) from error
