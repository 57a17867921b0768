"""The pages people read, taken apart: blocks, links, headings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
INDEX = DOCS / "README.md"
SPARK_PAGE = DOCS / "reference" / "spark.md"
TUTORIAL = DOCS / "tutorial" / "first-pipeline.md"
SIMULATE = DOCS / "howto" / "simulate-a-queue.md"
SPARK_PAGES = (SPARK_PAGE, TUTORIAL, SIMULATE)
"""Their examples want a session, so tests/edges/spark runs them, which has one."""
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]

_FENCE = re.compile(r"```(?P<language>[a-z]*)\s*")
_NOT_RUN = re.compile(r"<!-- not run: (?P<reason>.+) -->")
_LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_CODE = re.compile(r"`[^`]*`")
_FILE = re.compile(r"# (?P<path>[\w/]+\.py)\n")


class Block(NamedTuple):
    """A fenced piece of a page. `line` is that of its first line of text, counted from 1."""

    language: str
    text: str
    line: int
    not_run: str | None = None
    """Why it is not executed; None: it is."""

    @property
    def file(self) -> str | None:
        """The path in its first line, as a comment, if the block is a file of the reader's project."""
        match = _FILE.match(self.text) if self.language == "python" else None
        return match["path"] if match else None


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def blocks(path: Path) -> Iterator[Block]:
    lines = path.read_text(encoding="utf-8").splitlines()
    number, before = 0, ""
    while number < len(lines):
        fence = _FENCE.fullmatch(lines[number])
        if fence is None:
            before = lines[number] or before
            number += 1
            continue
        end = lines.index("```", number + 1)
        reason = _NOT_RUN.fullmatch(before)
        text = "\n".join(lines[number + 1 : end]) + "\n"
        yield Block(fence["language"], text, number + 2, reason["reason"] if reason else None)
        number, before = end + 1, ""


def prose(path: Path) -> str:
    """The page without its fenced blocks; lines stay where they were."""
    kept: list[str] = []
    inside = False
    for line in path.read_text(encoding="utf-8").splitlines():
        fence = line.startswith("```")
        kept.append("" if inside or fence else line)
        inside ^= fence
    return "\n".join(kept)


def links(path: Path) -> list[str]:
    return [match["target"] for match in _LINK.finditer(_CODE.sub("", prose(path)))]


def relative_links(path: Path) -> list[tuple[Path, str]]:
    """Where each link inside the repository leads: a file, and the heading in it (or nothing)."""
    targets: list[tuple[Path, str]] = []
    for target in links(path):
        if "://" in target or target.startswith("mailto:"):
            continue
        page, _, heading = target.partition("#")
        targets.append(((path.parent / page).resolve() if page else path, heading))
    return targets


def headings(path: Path) -> set[str]:
    """As a link names them: lower case, words joined by dashes."""
    titles = re.findall(r"^#+ (.+)$", prose(path), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}
