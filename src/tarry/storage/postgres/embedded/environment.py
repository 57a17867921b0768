"""The only place where the embedded server reads environment variables."""

import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The environment, read once. `asked`: the location was set explicitly, not assumed.

    No `data_home` means that this user has no home directory, as with the arbitrary user ids of some clusters.
    """

    data_home: Path | None
    asked: bool
    runtime_dir: Path | None
    search_path: str
    inherited: Mapping[str, str]


def read_environment(environ: Mapping[str, str] = os.environ) -> Environment:
    """Read the environment. `inherited` is all that the server's processes see: they outlive this process and must not
    get its secrets.
    """
    tarry_home, xdg_data, runtime = (
        environ.get("TARRY_HOME"),
        environ.get("XDG_DATA_HOME"),
        environ.get("XDG_RUNTIME_DIR"),
    )
    if tarry_home:
        data_home = Path(tarry_home)
    elif _absolute(xdg_data):
        data_home = Path(str(xdg_data)) / "tarry"
    else:
        home = environ.get("HOME") or _home_in_passwd()
        data_home = Path(home) / ".local" / "share" / "tarry" if home else None
    search_path = environ.get("PATH", os.defpath)
    kept = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
    return Environment(
        data_home=data_home,
        asked=bool(tarry_home) or _absolute(xdg_data),
        runtime_dir=Path(str(runtime)) if _absolute(runtime) else None,
        search_path=search_path,
        inherited={"PATH": search_path, "LC_ALL": "C"} | {name: environ[name] for name in kept if name in environ},
    )


def _absolute(value: str | None) -> bool:
    """The XDG specification requires relative paths to be ignored."""
    return value is not None and Path(value).is_absolute()


def _home_in_passwd() -> str | None:
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return None
