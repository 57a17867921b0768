"""Links lead somewhere, every page can be found, and big words come with their condition."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, INDEX, PAGES, ROOT, headings, named, prose, relative_links

LINKED = [*PAGES, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]


@pytest.mark.parametrize("path", LINKED, ids=named)
def test_every_relative_link_leads_somewhere(path: Path) -> None:
    broken = [
        f"{target}#{heading}"
        for target, heading in relative_links(path)
        if not target.exists() or (heading and heading not in headings(target))
    ]
    assert broken == []


@pytest.mark.parametrize("path", LINKED, ids=named)
def test_no_link_leaves_the_repository_by_a_path(path: Path) -> None:
    assert [str(target) for target, _ in relative_links(path) if not target.is_relative_to(ROOT)] == []


def test_every_page_can_be_reached_from_the_index() -> None:
    reached, waiting = {INDEX}, [INDEX]
    while waiting:
        for target, _ in relative_links(waiting.pop()):
            if target.suffix == ".md" and target.is_relative_to(DOCS) and target.exists() and target not in reached:
                reached.add(target)
                waiting.append(target)
    assert sorted(map(named, set(DOCS.rglob("*.md")) - reached)) == []


@pytest.mark.parametrize("path", PAGES, ids=named)
def test_exactly_once_is_never_said_without_its_condition(path: Path) -> None:
    """It holds for an effect that commits in the transaction of the ack, and for nothing else."""
    paragraphs = re.split(r"\n\s*\n", prose(path))
    said = [paragraph for paragraph in paragraphs if re.search(r"exactly[ -]once", paragraph, flags=re.IGNORECASE)]
    assert [paragraph for paragraph in said if "transaction" not in paragraph] == []
