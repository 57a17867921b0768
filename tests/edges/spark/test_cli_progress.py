"""How far a job is, on a terminal: drawn while real tasks of Spark run, gone when they are done, not drawn for others."""

from __future__ import annotations

import os
import pty
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import IO, TYPE_CHECKING, Any

import pytest

# Imported lazily by the first command, it would keep the replaced functions of `pipeline_jobs` for the tests that follow.
import tarry.edges.cli.commands.pipeline  # noqa: F401  # pyright: ignore[reportUnusedImport]
from tarry.edges.cli.main import main
from tarry.edges.cli.pipeline import jobs as pipeline_jobs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMEOUT_S = 60.0
TASKS = 3
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Screen:
    """A terminal with everything that was ever on its screen."""

    def __init__(self) -> None:
        self._ours, theirs = pty.openpty()
        self.file = os.fdopen(theirs, "w")
        self._changed = threading.Condition()
        self._drawn = ""
        self._eye = threading.Thread(target=self._look)
        self._eye.start()

    def _look(self) -> None:
        while text := self._read():
            with self._changed:
                self._drawn += text
                self._changed.notify_all()

    def _read(self) -> str:
        try:
            return os.read(self._ours, 65_536).decode(errors="replace")
        except OSError:  # the error of Linux when the other side is closed
            return ""

    @property
    def drawn(self) -> str:
        return _ESCAPES.sub("", self._drawn)

    def shows(self, text: str) -> bool:
        """Once it does, or False after a while."""
        with self._changed:
            return self._changed.wait_for(lambda: text in self.drawn, TIMEOUT_S)

    def run(self, *args: str) -> int:
        """A command, with this as its stderr. Not by a fixture: pytest gives every phase of a test a stderr of its own."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TERM", "xterm")
            patch.setenv("COLUMNS", "100")
            patch.setattr(sys, "stderr", self.file)
            return main([*args])

    def close(self) -> None:
        self.file.close()
        self._eye.join(TIMEOUT_S)
        os.close(self._ours)


@pytest.fixture
def screen() -> Iterator[Screen]:
    made = Screen()
    yield made
    made.close()


def wait_for_release(barrier: str, part: int) -> None:
    """The first task of a stage has nothing to wait for; the others wait until the test opens the other end."""
    if part > 0:
        Path(barrier).open("rb").close()


def opened(barrier: Path) -> IO[bytes]:
    """Tasks pass until it is closed. Open for reading too, so that opening does not wait for a task."""
    return os.fdopen(os.open(barrier, os.O_RDWR), "wb", buffering=0)


@pytest.fixture
def barrier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Holds up the job `archive`, which is played here, by its tasks, which are not."""
    made = tmp_path / "barrier"
    os.mkfifo(made)

    def run(spark: SparkSession, app: Any, args: Any) -> Any:
        name = str(made)
        spark.sparkContext.parallelize(range(TASKS), TASKS).foreach(lambda part: wait_for_release(name, part))
        return SimpleNamespace(line=lambda: "archive: done")

    monkeypatch.setattr(pipeline_jobs, "load", lambda name: SimpleNamespace(run=run, __name__=name))
    monkeypatch.setattr(pipeline_jobs, "arguments", lambda module, given: given)
    return made


def test_a_bar_shows_how_many_tasks_are_done_and_leaves_one_line(
    spark: SparkSession, screen: Screen, barrier: Path, database: str, capfd: pytest.CaptureFixture[str]
) -> None:
    seen: list[bool] = []

    def open_when_seen() -> None:
        seen.append(screen.shows(f"1/{TASKS} tasks"))
        with opened(barrier):
            ended.wait(TIMEOUT_S)

    ended = threading.Event()
    opener = threading.Thread(target=open_when_seen)
    opener.start()
    try:
        code = screen.run("--dsn", database, "pipeline", "run", "archive")
    finally:
        ended.set()
        opener.join(TIMEOUT_S)
    assert (code, seen) == (0, [True]), screen.drawn
    assert re.search(rf"archive +\S*━\S* 1/{TASKS} tasks +0:00:\d\d", screen.drawn)
    assert re.fullmatch(r"archive: done \(\d+\.\d s\)\n", capfd.readouterr().out)


@pytest.mark.parametrize("options", [["--quiet"], ["-o", "json"]], ids=" ".join)
def test_with_quiet_or_without_a_terminal_there_is_no_bar(
    spark: SparkSession, screen: Screen, barrier: Path, database: str, options: list[str]
) -> None:
    with opened(barrier):
        assert screen.run("--dsn", database, "pipeline", "run", "archive", *options) == 0
    print("the end", file=screen.file, flush=True)
    assert screen.shows("the end")
    assert screen.drawn.strip() == "the end"
