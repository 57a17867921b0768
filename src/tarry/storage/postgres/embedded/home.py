"""The private directory of one server: where it is, and whether it belongs to this user."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

from .environment import Environment
from .errors import EmbeddedError
from .supervisor.layout import Layout

# For the data of root, if the account that has to run PostgreSQL cannot enter root's home directory.
SYSTEM_HOME = Path("/var/lib/tarry")


def default_home(
    environment: Environment, major: int, *, namespaces: Callable[[], bool], system_home: Path = SYSTEM_HOME
) -> Path:
    """The user's data directory; for root without namespaces, one that other accounts can reach."""
    if environment.data_home is None:
        raise EmbeddedError(
            f"uid {os.geteuid()} has no home directory. Set TARRY_HOME (or data_dir=) to a place for the data."
        )
    name = f"postgres-{major}"
    personal = environment.data_home / name
    if environment.asked or os.geteuid() != 0:
        return personal
    for place in (personal, system_home / name):
        if Layout(place).pgdata.exists():
            return place
    if _open_to_others(environment.data_home) or namespaces():
        return personal
    return system_home / name


def _open_to_others(place: Path) -> bool:
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in (place, *place.parents) if parent.exists())


def claim(home: Path) -> Layout:
    """Create the directory if necessary; reject one that has another owner or other content."""
    if "\n" in str(home):
        raise EmbeddedError(
            f"{str(home)!r} has a line break in it, which PostgreSQL's own notes cannot hold. Choose another."
        )
    layout = Layout(home)
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = home.stat()
        if os.geteuid() not in (0, facts.st_uid):
            raise EmbeddedError(
                f"{home} belongs to uid {facts.st_uid}, and this is uid {os.geteuid()}: its server is not ours to use. "
                "Set TARRY_HOME (or data_dir=) to a directory of your own, or TARRY_DSN to a server that you share."
            )
        content = os.listdir(home)  # noqa: PTH208 (names only, no Path for each)
        if content and layout.startup_lock.name not in content:
            raise EmbeddedError(
                f"{home} is not empty and was not made by Tarry (it holds {sorted(content)[0]!r}). Give a data_dir= "
                "that is empty or does not exist; for a server that runs already, set TARRY_DSN."
            )
        if facts.st_mode & 0o077:
            home.chmod(0o700)
    except (PermissionError, NotADirectoryError, FileExistsError) as error:
        raise EmbeddedError(
            f"The data directory {home} cannot be used: {error}. Set TARRY_HOME (or data_dir=) to a place where "
            f"uid {os.geteuid()} may write."
        ) from error
    except OSError as error:
        raise EmbeddedError(
            f"The data directory {home} cannot be made: {error}. Mend that, or set TARRY_HOME."
        ) from error
    return layout


def check_major(layout: Layout, major: int) -> None:
    """Reject data of another major version before PostgreSQL does: it cannot read the files."""
    try:
        found = (layout.pgdata / "PG_VERSION").read_text().strip()
    except FileNotFoundError:
        return
    except OSError as error:
        raise EmbeddedError(f"{layout.pgdata} cannot be read: {error}. Who owns it?") from error
    if found != str(major):
        raise EmbeddedError(
            f"{layout.home} holds data of PostgreSQL {found}, and the binaries are PostgreSQL {major}. Choose binaries "
            f"of version {found} to go on with that data, or another data_dir= to start afresh; to bring the data "
            "over, run both and pipe pg_dump of the old one into psql of the new one."
        )
