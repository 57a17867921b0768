"""Runs a page whose commands need Spark, in this process: a command of its own would start another JVM."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tarry.edges.cli.main import main
from tests.docs.pages import blocks
from tests.docs.running import PROGRAM, Reader


class InProcess(Reader):
    def __init__(self, path: Path, dsn: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        super().__init__(path, dsn, folder, os.environ)
        self._capsys = capsys
        self.printed: list[str] = []

    def _run(self, argv: list[str]) -> str:
        if argv[0] != str(PROGRAM):
            return super()._run(argv)
        code = main(argv[1:])
        output = "".join(self._capsys.readouterr())
        assert code == 0, output
        self.printed.append(output)
        return output


def read(
    path: Path, dsn: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """Run the page from its first block to its last; what its commands printed."""
    monkeypatch.setenv("TARRY_DSN", dsn)
    monkeypatch.setenv("TARRY_HOME", str(folder / "home"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(folder)
    reader = InProcess(path, dsn, folder, capsys)
    try:
        for block in blocks(path):
            reader.run_block(block)
    finally:
        reader.close()
    return reader.printed
