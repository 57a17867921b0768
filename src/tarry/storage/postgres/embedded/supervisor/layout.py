"""Shared by the using processes and the supervisor: file names, locks, the published state, report words."""

import fcntl
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

SUPERUSER = "tarry"
DATABASE = "tarry"
PORT = 5432
PAUSE_FOR = 0.01
# The only argument of a supervisor that just tests whether user namespaces are allowed, by its exit status.
PROBE = "are-namespaces-allowed"
# The first line of the supervisor's report to the process that launched it.
READY, BUSY, FAILED = "ready", "busy", "failed"


class StartError(Exception):
    """The server cannot be started; the message is for the user and contains a remedy."""


class Layout:
    """Paths of one server. There are four locks:

    - startup: held by the process that is about to start or stop the server
    - users: shared by every process that uses the server
    - supervisor: held by the supervisor for its whole life
    - server: inherited by every process of PostgreSQL; free means that none of them is left

    Lock files are never removed: two processes could then hold "the same" lock.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.startup_lock = home / "startup.lock"
        self.users_lock = home / "users.lock"
        self.supervisor_lock = home / "supervisor.lock"
        self.server_lock = home / "server.lock"
        self.state = home / "server.json"
        self.log = home / "server.log"
        self.pgdata = home / "pgdata"
        self.postmaster_pid = self.pgdata / "postmaster.pid"
        self.socket_dir = home / "socket"
        # Holds the path of another socket directory, used if the usual one is too long for a socket.
        self.short_socket_dir = home / "socket.path"


def socket_file(socket_dir: Path) -> Path:
    return socket_dir / f".s.PGSQL.{PORT}"


@dataclass(frozen=True, slots=True)
class ServerState:
    """The published state of a ready server. Valid only while the supervisor lock is held."""

    socket_dir: Path
    postmaster: int
    supervisor: int


def write_state(layout: Layout, state: ServerState) -> None:
    draft = layout.state.with_suffix(".new")
    draft.write_text(json.dumps(asdict(state), default=str))
    draft.replace(layout.state)


def read_state(layout: Layout) -> ServerState | None:
    try:
        fields = json.loads(layout.state.read_text())
    except FileNotFoundError:
        return None
    return ServerState(Path(fields["socket_dir"]), fields["postmaster"], fields["supervisor"])


def open_lock(path: Path) -> int:
    """Open a descriptor to lock; not inherited across exec, but shared with forked children."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        pass
    try:
        lock = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return os.open(path, flags)
    if os.geteuid() == 0:
        # Root joins servers that other accounts run, and these must be able to open the file too.
        owner = path.parent.stat()
        os.fchown(lock, owner.st_uid, owner.st_gid)
    return lock


def acquire(lock: int, kind: int, *, deadline: float) -> bool:
    """Whether the lock was acquired before the deadline (of `time.monotonic`); 0 tries once."""
    while True:
        try:
            fcntl.flock(lock, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(PAUSE_FOR)
        else:
            return True
