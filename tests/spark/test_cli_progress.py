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

from tarry.edges.cli import pipeline_run
from tarry.edges.cli.main import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_S = 60.0
TASKS = 3
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Screen:
    """A terminal as somebody sees it who looks at it all the time."""

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
        except OSError:  # what Linux says when the other side is gone
            return ""

    @property
    def drawn(self) -> str:
        return _ESCAPES.sub("", self._drawn)

    def shows(self, text: str) -> bool:
        """Once it does, or False after a while."""
        with self._changed:
            return self._changed.wait_for(lambda: text in self.drawn, PATIENCE_S)

    def run(self, *args: str) -> int:
        """A command, with this as its stderr. Not by a fixture: pytest gives every phase of a test a stderr of its own."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TERM", "xterm")
            patch.setenv("COLUMNS", "100")
            patch.setattr(sys, "stderr", self.file)
            return main([*args])

    def close(self) -> None:
        self.file.close()
        self._eye.join(PATIENCE_S)
        os.close(self._ours)


@pytest.fixture
def screen() -> Iterator[Screen]:
    made = Screen()
    yield made
    made.close()


def pass_the_gate(gate: str, part: int) -> None:
    """The first task of a stage has nothing to wait for; the others wait until somebody opens the other end."""
    if part > 0:
        Path(gate).open("rb").close()


def opened(gate: Path) -> IO[bytes]:
    """Whoever comes may pass until it is closed. For reading too, so that nobody waits for somebody to come."""
    return os.fdopen(os.open(gate, os.O_RDWR), "wb", buffering=0)


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Holds up the job `archive`, which is played here, by its tasks, which are not."""
    made = tmp_path / "gate"
    os.mkfifo(made)

    def run(spark: SparkSession, app: Any, args: Any) -> Any:
        name = str(made)
        spark.sparkContext.parallelize(range(TASKS), TASKS).foreach(lambda part: pass_the_gate(name, part))
        return SimpleNamespace(line=lambda: "archive: done")

    monkeypatch.setattr(pipeline_run, "load", lambda name: SimpleNamespace(run=run, __name__=name))
    monkeypatch.setattr(pipeline_run, "arguments", lambda module, given: given)
    return made


def test_a_bar_shows_how_many_tasks_are_done_and_leaves_one_line(
    spark: SparkSession, screen: Screen, gate: Path, database: str, capfd: pytest.CaptureFixture[str]
) -> None:
    seen: list[bool] = []

    def open_when_seen() -> None:
        seen.append(screen.shows(f"1/{TASKS} tasks"))
        with opened(gate):
            ended.wait(PATIENCE_S)

    ended = threading.Event()
    somebody = threading.Thread(target=open_when_seen)
    somebody.start()
    try:
        code = screen.run("--dsn", database, "pipeline", "run", "archive")
    finally:
        ended.set()
        somebody.join(PATIENCE_S)
    assert (code, seen) == (0, [True]), screen.drawn
    assert re.search(rf"archive +\S*━\S* 1/{TASKS} tasks +0:00:\d\d", screen.drawn)
    assert capfd.readouterr().out == "archive: done\n"


@pytest.mark.parametrize("asked", [["--quiet"], ["-o", "json"]], ids=" ".join)
def test_who_wants_no_remarks_or_reads_with_a_program_gets_no_bar(
    spark: SparkSession, screen: Screen, gate: Path, database: str, asked: list[str]
) -> None:
    with opened(gate):
        assert screen.run("--dsn", database, "pipeline", "run", "archive", *asked) == 0
    print("the end", file=screen.file, flush=True)
    assert screen.shows("the end")
    assert screen.drawn.strip() == "the end"
