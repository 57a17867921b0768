"""Promises that the repository makes about itself."""

import importlib.metadata
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCK = (ROOT / "requirements.lock").read_text()
SQL_FILES = sorted((ROOT / "src").rglob("*.sql"))
LINE_LIMIT = 450  # the rule of thumb is 400; beyond this a file surely has two responsibilities


def locked_packages() -> dict[str, str]:
    """Each package of the lock with everything that the lock says about it."""
    entries = re.split(r"^(?=[A-Za-z0-9])", LOCK, flags=re.MULTILINE)[1:]
    return {canonicalize_name(re.split(r"[=\[ ]", entry, maxsplit=1)[0]): entry for entry in entries}


def test_the_license_is_apache_2() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    assert PROJECT["license"] == "Apache-2.0"


def test_every_locked_package_is_pinned_and_has_hashes() -> None:
    unsafe = [name for name, entry in locked_packages().items() if "==" not in entry or "--hash=sha256:" not in entry]
    assert locked_packages()
    assert unsafe == []


def test_the_lock_names_no_place_to_download_from() -> None:
    assert "://" not in LOCK
    assert "index-url" not in LOCK
    assert "find-links" not in LOCK


def test_every_declared_dependency_is_locked() -> None:
    groups = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    names = {canonicalize_name(Requirement(line).name) for group in groups for line in group}
    assert names - {"tarry"} <= locked_packages().keys()


def test_every_sql_file_begins_with_a_comment_that_says_why() -> None:
    bare = [path.name for path in SQL_FILES if not path.read_text().lstrip().startswith("--")]
    assert bare == []


def test_no_file_is_too_long_to_have_one_responsibility() -> None:
    sources = [path for folder in ("src", "tests") for path in (ROOT / folder).rglob("*.*")]
    written = [path for path in sources if path.suffix in {".py", ".sql"}]
    written = [path for path in written if path.name != "schema.sql"]  # a snapshot: nobody writes it by hand
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in written}
    assert {path: lines for path, lines in lengths.items() if lines > LINE_LIMIT} == {}


def test_the_installed_version_is_the_declared_version() -> None:
    assert importlib.metadata.version("tarry") == PROJECT["version"]


def test_the_wheel_carries_the_sql_and_the_type_marker(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    expected = {path.relative_to(ROOT / "src").as_posix() for path in SQL_FILES} | {"tarry/py.typed"}
    assert expected <= packed


@pytest.mark.parametrize(
    ("message", "accepted"),
    [
        ("Add a lock timeout to group commits", True),
        ("Add a lock timeout\n\nOne locked row stopped a process.\n# a comment of git", True),
        ("Merge branch 'other'", True),
        ("A" * 73, False),
        ("add a lock timeout", False),
        ("Add a lock timeout.", False),
        ("Add a lock timeout\nwithout a blank line", False),
        ("", False),
    ],
)
def test_the_commit_hook_checks_the_form_of_a_message(message: str, accepted: bool, tmp_path: Path) -> None:
    (tmp_path / "message").write_text(message)
    command = [ROOT / "tools/hooks/commit-msg", tmp_path / "message"]
    hook = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (hook.returncode == 0) is accepted, hook.stderr
    assert accepted or "CONTRIBUTING.md" in hook.stderr
