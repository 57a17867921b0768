"""Every example in the README and the docs is run, page by page, as a reader would."""

from __future__ import annotations

import ast
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, SPARK_PAGES, blocks, named
from tests.docs.running import Reader
from tests.kit.directories import new_directory

RUN = ("python", "sql", "console")
RUN_HERE = [page for page in PAGES if page not in SPARK_PAGES and any(block.language in RUN for block in blocks(page))]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A place for a reader's own things."""
    made = new_directory("tarry-docs-")
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.mark.parametrize("path", RUN_HERE, ids=named)
def test_the_examples_of_a_page_work_as_documented(
    path: Path, database: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TARRY_DSN", database)
    monkeypatch.setenv("TARRY_HOME", str(folder / "home"))
    monkeypatch.chdir(folder)
    reader = Reader(path, database, folder, {**os.environ, "COLUMNS": "100", "NO_COLOR": "1"})
    try:
        for block in blocks(path):
            reader.run_block(block)
    finally:
        reader.close()


def test_a_block_that_is_not_run_has_a_reason() -> None:
    skipped = [(named(path), block) for path in PAGES for block in blocks(path) if block.not_run is not None]
    assert [f"{page}:{block.line}" for page, block in skipped if len(block.not_run or "") < 10] == []


def test_python_that_is_not_run_is_python_at_least() -> None:
    for path in PAGES:
        for block in blocks(path):
            if block.language == "python" and block.not_run is not None:
                compile("\n" * (block.line - 1) + block.text, str(path), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
