"""`make demo`: its story is on the page, nothing is lost, doubled or early, and no process is left when it ends."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

import pytest

from examples.demo import __main__ as demo
from tests.kit.directories import new_directory
from tests.kit.sleepers import until

LONG_S = 240.0
"""For one event of the story: the machines of tests are busy."""


@pytest.fixture
def home() -> Iterator[Path]:
    folder = new_directory("tarry-demo-")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


class Demo:
    """A demo as a process, in a home of its own: whatever it starts has this path in its environment or command line."""

    def __init__(self, home: Path, *args: str) -> None:
        named = ("TARRY", "PG", "XDG", "DEMO")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(named)}
        self._home = home
        self.process = subprocess.Popen(
            [sys.executable, "-m", "examples.demo", "--port", "0", *args],
            cwd=Path(__file__).parents[2],
            env={**environment, "HOME": str(home), "TMPDIR": str(home), "COLUMNS": "160"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.output = ""
        self.pages = self.read_to(r"http://127\.0\.0\.1:\d+/dashboard/")

    def read_to(self, pattern: str) -> str:
        """Read its output up to a line that matches. Returns the match."""
        assert self.process.stdout is not None
        while not (matched := re.search(pattern, self.output)):
            line = self.process.stdout.readline()
            assert line, self.output
            self.output += line
        return matched[0]

    def page(self, path: str) -> str:
        with urlopen(self.pages + path, timeout=30) as response:
            return response.read().decode()

    def ended(self) -> int:
        """Wait for its exit code, and read the rest of its output."""
        rest, _ = self.process.communicate(timeout=LONG_S)
        self.output += rest
        return self.process.returncode

    def left(self) -> list[str]:
        """Command lines of its processes that still run, and its files."""
        processes: list[str] = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has just ended
                command = (folder / "cmdline").read_bytes()
                if (
                    folder.name != str(os.getpid())
                    and str(self._home).encode() in command + (folder / "environ").read_bytes()
                ):
                    processes.append(command.decode(errors="replace"))
        return processes + [str(path) for path in self._home.glob("tarry-demo-*")]


@pytest.mark.timeout(2 * LONG_S)
def test_the_story_is_on_the_page_and_nothing_is_lost(home: Path) -> None:
    started = Demo(home, "--seconds", "10", "--no-pipeline")
    started.read_to("the payment provider is down")
    until(lambda: "ProviderDown" in started.page("dead"), "no payment became a dead letter", timeout_s=LONG_S)
    assert {row["queue"] for row in json.loads(started.page("dead.json"))["groups"]} == {"orders", "payments"}
    overview = started.page("")
    assert all(f"queues/{queue}" in overview for queue in ("orders", "payments", "emails", "hello"))
    assert started.ended() == 0, started.output
    for line in (
        "curl http",
        "kill -9",
        "dead letters of one kind",
        "canaries",
        "Nothing lost, nothing doubled, nothing early.",
    ):
        assert line in started.output, started.output
    until(lambda: not started.left(), "processes or files are left")


@pytest.mark.timeout(2 * LONG_S)
def test_an_interrupt_ends_all_processes_within_seconds(home: Path) -> None:
    started = Demo(home, "--no-pipeline")
    started.read_to("handled by two workers")
    interrupted_s = time.monotonic()
    started.process.send_signal(signal.SIGINT)
    assert started.ended() == 0, started.output
    assert time.monotonic() - interrupted_s < 20
    until(lambda: not started.left(), "processes or files are left")


@pytest.mark.chaos
@pytest.mark.timeout(3 * LONG_S)
def test_the_demo_explains_an_anomaly(home: Path) -> None:
    started = Demo(home, "--seconds", "8")
    assert started.ended() == 0, started.output
    assert "became a dead letter after" in started.output
    assert next(home.rglob("demo-report.html")).read_text().startswith("<!doctype html>")
    until(lambda: not started.left(), "processes or files are left")


def test_the_demo_runs_for_the_given_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEMO_SECONDS", raising=False)
    assert demo.options([]).seconds is None
    monkeypatch.setenv("DEMO_SECONDS", "2.5")
    assert demo.options([]).seconds == 2.5
    assert demo.options(["--seconds", "9"]).seconds == 9.0
    assert not demo.options([]).stays


@pytest.mark.parametrize("text", ["long", "-1", "0", "inf", "nan"])
def test_a_demo_of_no_length_is_bad_input(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("DEMO_SECONDS", text)
    with pytest.raises(SystemExit, match="2"):
        demo.options([])
    monkeypatch.delenv("DEMO_SECONDS")
    with pytest.raises(SystemExit, match="2"):
        demo.options([f"--seconds={text}"])
