"""Decision pages: numbered without gaps, of one form, and listed in the index."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

from tests.docs.pages import DOCS

FOLDER = DOCS / "decisions"
DECISIONS = sorted(FOLDER.glob("[0-9]*.md"))
ENTRY = re.compile(r"^\| \[(\d+)\]\(([^)]+)\) \| (.+) \|$", flags=re.MULTILINE)


def number(path: Path) -> int:
    return int(path.name[:4])


def title(path: Path) -> str:
    heading = re.match(rf"# {number(path)}\. (.+)\n", path.read_text(encoding="utf-8"))
    assert heading is not None, f"{path.name} must begin with '# {number(path)}. ' and its title"
    return heading[1]


def field(path: Path, name: str) -> str:
    value = re.search(rf"^{name}: (.+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert value is not None, f"{path.name} has no line '{name}: …'"
    return value[1]


def test_decisions_are_numbered_without_gaps() -> None:
    assert [number(path) for path in DECISIONS] == list(range(1, len(DECISIONS) + 1))


def test_the_index_lists_every_decision_with_its_title() -> None:
    entries = ENTRY.findall((FOLDER / "README.md").read_text(encoding="utf-8"))
    assert entries == [(str(number(path)), path.name, title(path)) for path in DECISIONS]


def test_a_decision_has_a_date_and_a_status() -> None:
    for path in DECISIONS:
        date.fromisoformat(field(path, "Date"))
        status = field(path, "Status")
        superseded = re.fullmatch(r"superseded by \[\d+\]\((.+)\)", status)
        assert status == "accepted" or (superseded and (FOLDER / superseded[1]).is_file()), path.name


def test_a_decision_has_its_sections_in_order() -> None:
    form = ["Decision", "Why", "Rejected alternatives", "Cost"]
    for path in DECISIONS:
        sections = re.findall(r"^## (.+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        assert sections[:2] == form[:2], path.name
        assert sections == [name for name in form if name in sections], path.name
