"""`make demo`, all parts: nothing lost, an outage outlived, an anomaly explained."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest

from examples.demo import __main__ as demo


@pytest.fixture
def home() -> Iterator[Path]:
    """Not under pytest's own directory: as root the embedded server runs under another account, which has no access there."""
    folder = Path(mkdtemp(prefix="tarry-demo-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_the_demo_plays_to_its_end_and_explains_an_anomaly(home: Path) -> None:
    named = ("TARRY", "PG", "XDG")
    ran = subprocess.run(
        [sys.executable, "-m", "examples.demo"],
        cwd=Path(__file__).parents[2],
        env={**{k: v for k, v in os.environ.items() if not k.startswith(named)}, "HOME": str(home), "COLUMNS": "160"},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[-3000:]
    for line in ("Nothing lost, nothing doubled, nothing early.", "none of them twice", "became a dead letter after"):
        assert line in ran.stdout, ran.stdout[-3000:]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """The lengths of demos, which do not run."""
    lengths: list[float | None] = []

    def run(seconds: float | None) -> int:
        lengths.append(seconds)
        return 7

    monkeypatch.setattr(demo, "run", run)
    return lengths


def test_the_demo_runs_for_the_given_time(monkeypatch: pytest.MonkeyPatch, runs: list[float | None]) -> None:
    monkeypatch.delenv("DEMO_SECONDS", raising=False)
    assert demo.main([]) == 7
    monkeypatch.setenv("DEMO_SECONDS", "2.5")
    demo.main([])
    demo.main(["--seconds", "9"])
    assert runs == [None, 2.5, 9.0]


@pytest.mark.parametrize("text", ["long", "-1", "0", "inf", "nan"])
def test_a_demo_of_no_length_is_bad_input(
    monkeypatch: pytest.MonkeyPatch, runs: list[float | None], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DEMO_SECONDS", text)
    with pytest.raises(SystemExit, match="2"):
        demo.main([])
    monkeypatch.delenv("DEMO_SECONDS")
    with pytest.raises(SystemExit, match="2"):
        demo.main([f"--seconds={text}"])
    assert runs == []
