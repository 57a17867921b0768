"""Every example in the README and the docs is run, page by page, as a reader would."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, SPARK_PAGE, blocks, named
from tests.docs.running import Reader
from tests.kit.rooms import room

RUN = ("python", "sql", "console")
RUN_HERE = [page for page in PAGES if page != SPARK_PAGE and any(block.language in RUN for block in blocks(page))]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A place for a reader's own things."""
    made = room("tarry-docs-")
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.mark.parametrize("path", RUN_HERE, ids=named)
def test_the_examples_of_a_page_do_what_it_says(
    path: Path, database: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TARRY_DSN", database)
    monkeypatch.setenv("TARRY_HOME", str(folder / "home"))
    monkeypatch.chdir(folder)
    reader = Reader(path, database, folder, {**os.environ, "COLUMNS": "100", "NO_COLOR": "1"})
    try:
        for block in blocks(path):
            reader.follow(block)
    finally:
        reader.close()


@pytest.mark.parametrize("path", PAGES, ids=named)
def test_a_block_that_is_not_run_says_why(path: Path) -> None:
    unexplained = [b.line for b in blocks(path) if b.not_run is not None and len(b.not_run) < 10]
    assert unexplained == []
