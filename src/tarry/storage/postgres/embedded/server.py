"""Join the embedded server of a data directory, starting it if it does not run."""

import fcntl
import os
import socket
import time
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from .binaries import Binaries, find_binaries
from .environment import Environment, read_environment
from .errors import EmbeddedError
from .home import check_major, claim, default_home
from .launch import launch, namespaces_allowed
from .settings import EmbeddedSettings
from .supervisor.layout import DATABASE, PORT, SUPERUSER, Layout, socket_file
from .supervisor.locks import acquire, open_lock
from .supervisor.order import Order
from .supervisor.state import State, forget_state, read_state

# Long, because PostgreSQL may have to replay a gigabyte of WAL after a power failure.
START_FOR = 300.0
PAUSE_FOR = 0.01
DEFAULTS = EmbeddedSettings()


class Embedded:
    """A process's claim on a running server. If the object is dropped, the claim lasts until the process ends."""

    __slots__ = ("_users", "data_dir", "dsn", "major")

    def __init__(self, *, users: int, data_dir: Path, major: int, dsn: str) -> None:
        self._users: int | None = users
        self.data_dir = data_dir
        self.major = major
        self.dsn = dsn

    def close(self) -> None:
        """Release the claim. The server stops by itself shortly after the last process has released it."""
        users, self._users = self._users, None
        if users is not None:
            # Closed, not unlocked: a forked child that still uses the server shares the lock and keeps it.
            os.close(users)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def start(settings: EmbeddedSettings = DEFAULTS) -> Embedded:
    """Block until the server accepts connections: milliseconds if it runs, a second or two for the first start ever."""
    environment = read_environment()
    binaries = find_binaries(settings.binaries, environment.search_path)
    chosen = settings.data_dir or default_home(
        environment, binaries.major, namespaces=lambda: namespaces_allowed(environment.inherited)
    )
    layout = claim(chosen.resolve())
    deadline = time.monotonic() + START_FOR
    try:
        users, state = _enter(layout, binaries, environment, deadline)
    except OSError as error:
        raise EmbeddedError(
            f"The data directory {layout.home} cannot be used: {error}. Who owns what is in it?"
        ) from error
    return Embedded(users=users, data_dir=layout.home, major=binaries.major, dsn=_dsn(state.socket_dir))


def _enter(layout: Layout, binaries: Binaries, environment: Environment, deadline: float) -> tuple[int, State]:
    """Join or start the server under the startup lock: no other process can start or stop it meanwhile."""
    startup = open_lock(layout.startup_lock)
    users: int | None = None
    try:
        if not acquire(startup, fcntl.LOCK_EX, deadline=deadline):
            raise EmbeddedError(
                f"Another process has been starting or stopping PostgreSQL in {layout.home} for {START_FOR:.0f} s. "
                f"See {layout.log}."
            )
        users = open_lock(layout.users_lock)
        # Contended only for the instant in which the supervisor detects that no process uses the server.
        if not acquire(users, fcntl.LOCK_SH, deadline=deadline):
            raise EmbeddedError(f"{layout.users_lock} is locked by a process that does not let go.")
        check_major(layout, binaries.major)
        return users, _running(layout, binaries, environment, deadline)
    except BaseException:
        if users is not None:
            os.close(users)
        raise
    finally:
        os.close(startup)


def _running(layout: Layout, binaries: Binaries, environment: Environment, deadline: float) -> State:
    supervisor = open_lock(layout.supervisor_lock)
    order = Order(layout.home, binaries.folder, binaries.major, environment.runtime_dir)
    try:
        while True:
            if acquire(supervisor, fcntl.LOCK_EX, deadline=0):
                # No supervisor is alive. The state of the last one is stale, and may be removed only while this lock is
                # held.
                forget_state(layout)
                fcntl.flock(supervisor, fcntl.LOCK_UN)
                launch(order, environment.inherited, deadline=deadline)
            state = read_state(layout)
            if state is not None and _listens(state):
                return state
            if time.monotonic() > deadline:
                raise EmbeddedError(f"PostgreSQL in {layout.home} runs but does not answer. See {layout.log}.")
            # Reached only while a supervisor works for a process that has died, or restarts a crashed server.
            time.sleep(PAUSE_FOR)
    finally:
        os.close(supervisor)


def _listens(state: State) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(socket_file(state.socket_dir)))
        except OSError:
            return False
        return True


def _dsn(socket_dir: Path) -> str:
    # An explicit port, because PGPORT would apply otherwise.
    return f"postgresql://{SUPERUSER}@/{DATABASE}?host={quote(os.fsencode(socket_dir), safe='')}&port={PORT}"
