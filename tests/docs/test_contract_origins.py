"""The table of origins is complete and names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "contract-origins.md").read_text()
SECTIONS = {
    "JDBC contract": 31,
    "JDBC advanced": 2,
    "Batch operations": 5,
    "In memory": 36,
    "CronService": 29,
    "CronDailySchedule": 12,
}


def existing() -> set[str]:
    folders = ("contracts", "core", "api")
    files = [path for folder in folders for path in (ROOT / "tests" / folder).rglob("test_*.py")]
    trees = [ast.parse(path.read_text()) for path in files]
    return {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def numbers(section: str) -> list[int]:
    """The first column: a number, a list of them, or a range."""
    _, _, rest = PAGE.partition(f"## {section}")
    contracts: list[int] = []
    for cell in re.findall(r"^\| ([\d–, ]+) \|", rest.partition("\n## ")[0], re.MULTILINE):
        for part in cell.split(","):
            first, _, last = part.strip().partition("–")
            contracts += range(int(first), int(last or first) + 1)
    return sorted(contracts)


@pytest.mark.parametrize("section", SECTIONS)
def test_every_original_case_is_mapped_once(section: str) -> None:
    assert numbers(section) == list(range(1, SECTIONS[section] + 1))


def test_every_test_that_is_named_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert named
    assert named - existing() == set()
