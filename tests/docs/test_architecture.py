"""Every function and file that the page on architecture names exists."""

from __future__ import annotations

import importlib
import re

from tests.docs.pages import DOCS, ROOT

PAGE = (DOCS / "explanation" / "architecture.md").read_text()


def resolves(path: str, name: str) -> bool:
    value: object = importlib.import_module("tarry." + path.removesuffix(".py").replace("/", "."))
    for part in name.split("."):
        value = getattr(value, part, None)
    return value is not None


def test_every_function_of_a_walk_exists() -> None:
    named = re.findall(r"`([\w/]+\.py)` `([\w.]+)`", PAGE)
    assert len(named) > 30
    assert [f"{path} {name}" for path, name in named if not resolves(path, name)] == []


def test_every_statement_of_a_walk_exists() -> None:
    folder = ROOT / "src" / "tarry" / "storage" / "postgres"
    assert [path for path in re.findall(r"`([\w/]+\.sql)`", PAGE) if not (folder / path).is_file()] == []
