"""The private directory of one server: its location by the environment, and checks that it belongs to this user."""

import os
import pwd
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tarry.core.errors import EmbeddedError

from .supervisor.layout import Layout

# For the data of root, if the account that has to run PostgreSQL cannot enter root's home directory.
SYSTEM_HOME = Path("/var/lib/tarry")


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The environment variables that the embedded server uses; no other module of it reads any."""

    data_home: Path | None  # None: this user has no home directory, as with the arbitrary user ids of some clusters
    explicit: bool  # data_home was set by a variable, not assumed
    runtime_dir: Path | None
    search_path: str
    inherited: Mapping[str, str]  # all that the server's processes see: they outlive this process and its secrets


def read_environment(environ: Mapping[str, str] = os.environ) -> Environment:
    tarry_home = environ.get("TARRY_HOME")
    xdg_data, runtime_dir = _absolute(environ.get("XDG_DATA_HOME")), _absolute(environ.get("XDG_RUNTIME_DIR"))
    if tarry_home:
        data_home = Path(tarry_home)
    elif xdg_data:
        data_home = xdg_data / "tarry"
    else:
        user_home = environ.get("HOME") or _home_in_passwd()
        data_home = Path(user_home) / ".local" / "share" / "tarry" if user_home else None
    search_path = environ.get("PATH", os.defpath)
    libraries = {name: environ[name] for name in ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH") if name in environ}
    return Environment(
        data_home=data_home,
        explicit=bool(tarry_home or xdg_data),
        runtime_dir=runtime_dir,
        search_path=search_path,
        inherited={"PATH": search_path, "LC_ALL": "C"} | libraries,
    )


def _absolute(value: str | None) -> Path | None:
    """The XDG specification requires relative paths to be ignored."""
    return Path(value) if value and Path(value).is_absolute() else None


def _home_in_passwd() -> str | None:
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return None


def default_home(
    environment: Environment, major: int, *, namespaces: Callable[[], bool], system_home: Path = SYSTEM_HOME
) -> Path:
    """The user's data directory; for root without namespaces, one that other accounts can reach."""
    if environment.data_home is None:
        raise EmbeddedError(
            f"uid {os.geteuid()} has no home directory. Set TARRY_HOME (or data_dir=) to a directory for the data."
        )
    personal, system = (parent / f"postgres-{major}" for parent in (environment.data_home, system_home))
    if environment.explicit or os.geteuid() != 0:
        return personal
    for home in (personal, system):
        if Layout(home).pgdata.exists():
            return home
    folders = (environment.data_home, *environment.data_home.parents)
    open_to_others = all(folder.stat().st_mode & stat.S_IXOTH for folder in folders if folder.exists())
    return personal if open_to_others or namespaces() else system


def claim(home: Path) -> Layout:
    """Create the directory if necessary; reject one that has another owner or other content."""
    if "\n" in str(home):
        raise EmbeddedError(f"{str(home)!r} has a line break, which PostgreSQL's pid file cannot hold. Choose another.")
    layout = Layout(home)
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = home.stat()
        if os.geteuid() not in (0, status.st_uid):
            raise EmbeddedError(
                f"{home} belongs to uid {status.st_uid}, and this is uid {os.geteuid()}, which may not use its server. "
                "Set TARRY_HOME (or data_dir=) to a directory of this user, or TARRY_DSN to a server that both may use."
            )
        content = os.listdir(home)  # noqa: PTH208 (names only, no Path for each)
        if content and layout.startup_lock.name not in content:
            raise EmbeddedError(
                f"{home} is not empty and was not made by Tarry (it holds {sorted(content)[0]!r}). Give a data_dir= "
                "that is empty or does not exist; for a server that runs already, set TARRY_DSN."
            )
        if status.st_mode & 0o077:
            home.chmod(0o700)
    except OSError as error:
        raise EmbeddedError(
            f"The data directory {home} cannot be used: {error}. Set TARRY_HOME (or data_dir=) to a directory where "
            f"uid {os.geteuid()} may write."
        ) from error
    return layout


def check_major(layout: Layout, major: int) -> None:
    """Reject data of another major version before PostgreSQL does: it cannot read the files."""
    try:
        data_major = (layout.pgdata / "PG_VERSION").read_text().strip()
    except FileNotFoundError:
        return
    if data_major != str(major):
        raise EmbeddedError(
            f"{layout.home} holds data of PostgreSQL {data_major}, and the binaries are PostgreSQL {major}. Choose "
            f"binaries of version {data_major} to keep that data, or another data_dir= to start empty; to move the "
            "data, run both and pipe pg_dump of the old server into psql of the new server."
        )
