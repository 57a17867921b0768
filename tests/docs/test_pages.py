"""Links lead somewhere, every page can be found, and big words come with their condition."""

from __future__ import annotations

import re

from tests.docs.pages import DOCS, INDEX, PAGES, ROOT, headings, named, prose, relative_links

LINKED = [*PAGES, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]


def test_every_relative_link_leads_somewhere() -> None:
    broken = [
        f"{named(path)}: {target}#{heading}"
        for path in LINKED
        for target, heading in relative_links(path)
        if not target.exists() or (heading and heading not in headings(target))
    ]
    assert broken == []


def test_no_link_leaves_the_repository_by_a_path() -> None:
    targets = [(named(path), target) for path in LINKED for target, _ in relative_links(path)]
    assert [(page, str(target)) for page, target in targets if not target.is_relative_to(ROOT)] == []


def test_every_page_can_be_reached_from_the_index() -> None:
    reached, waiting = {INDEX}, [INDEX]
    while waiting:
        for target, _ in relative_links(waiting.pop()):
            if target.suffix == ".md" and target.is_relative_to(DOCS) and target.exists() and target not in reached:
                reached.add(target)
                waiting.append(target)
    assert sorted(map(named, set(DOCS.rglob("*.md")) - reached)) == []


def test_exactly_once_is_never_claimed_without_its_condition() -> None:
    """It holds for an effect that commits in the transaction of the ack, and for nothing else."""
    paragraphs = [(named(path), paragraph) for path in PAGES for paragraph in re.split(r"\n\s*\n", prose(path))]
    claims = [each for each in paragraphs if re.search(r"exactly[ -]once", each[1], flags=re.IGNORECASE)]
    assert [claim for claim in claims if "transaction" not in claim[1]] == []
