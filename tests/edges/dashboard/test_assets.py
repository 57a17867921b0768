"""Static files are what their lock states, and are in the package."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

import pytest

import tarry.edges.dashboard

ROOT = Path(tarry.edges.dashboard.__file__).parent
FOLDERS = (ROOT / "static" / "vendor", Path(__file__).parent / "vendor")


@pytest.mark.parametrize("folder", FOLDERS, ids=["shipped", "tests"])
def test_vendored_files_have_the_hashes_of_their_lock(folder: Path) -> None:
    lock = {entry["file"]: entry for entry in json.loads((folder / "vendor.lock.json").read_text())}
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "vendor.lock.json"}
    assert {name: base64.b64encode(hashlib.sha384(content).digest()).decode() for name, content in files.items()} == {
        name: entry["sha384"] for name, entry in lock.items()
    }
    assert all(entry["version"] and entry["licence"] for entry in lock.values())


def test_no_template_has_inline_styles_or_scripts() -> None:
    texts = {path.name: path.read_text() for path in (ROOT / "templates").rglob("*.html")}
    wrong = {name for name, text in texts.items() if " style=" in text or "<style" in text or " onclick=" in text}
    scripts = {name for name, text in texts.items() for part in text.split("<script")[1:] if " src=" not in part[:120]}
    assert wrong | scripts == set()
