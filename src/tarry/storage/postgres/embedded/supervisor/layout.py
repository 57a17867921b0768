"""File names in the private directory of one server."""

from dataclasses import dataclass
from pathlib import Path

SUPERUSER = "tarry"
DATABASE = "tarry"
PORT = 5432


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths of one server. There are four locks:

    - startup: held by the process that is about to start or stop the server
    - users: shared by every process that uses the server
    - supervisor: held by the supervisor for its whole life
    - server: inherited by every process of PostgreSQL; free means that none of them is left

    Lock files are never removed: two processes could then hold "the same" lock.
    """

    home: Path

    @property
    def startup_lock(self) -> Path:
        return self.home / "startup.lock"

    @property
    def users_lock(self) -> Path:
        return self.home / "users.lock"

    @property
    def supervisor_lock(self) -> Path:
        return self.home / "supervisor.lock"

    @property
    def server_lock(self) -> Path:
        return self.home / "server.lock"

    @property
    def state(self) -> Path:
        return self.home / "server.json"

    @property
    def log(self) -> Path:
        return self.home / "server.log"

    @property
    def pgdata(self) -> Path:
        return self.home / "pgdata"

    @property
    def postmaster_pid(self) -> Path:
        return self.pgdata / "postmaster.pid"

    @property
    def socket_dir(self) -> Path:
        return self.home / "socket"

    @property
    def short_socket_dir(self) -> Path:
        """A file with the path of an alternative socket directory, used if the path of the usual one is too long for a
        socket.
        """
        return self.home / "socket.path"


def socket_file(socket_dir: Path) -> Path:
    return socket_dir / f".s.PGSQL.{PORT}"
