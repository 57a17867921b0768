"""The one place where the embedded server looks at environment variables."""

import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What the environment says, read once. `asked` tells a place that was named from one that was assumed.

    No `data_home` means that this user has no home either, as with the arbitrary ids that some clusters assign.
    """

    data_home: Path | None
    asked: bool
    runtime_dir: Path | None
    search_path: str
    inherited: Mapping[str, str]


def read_environment(environ: Mapping[str, str] = os.environ) -> Environment:
    """`inherited` is all that the server's processes get to see: they outlive us, and our secrets are not theirs."""
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
    """The XDG specification: relative paths are to be ignored."""
    return value is not None and Path(value).is_absolute()


def _home_in_passwd() -> str | None:
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return None
