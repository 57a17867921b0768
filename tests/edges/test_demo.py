"""`tarry demo` as people run it, all acts: nothing lost, an outage outlived, an anomaly explained."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest


@pytest.fixture
def home() -> Iterator[Path]:
    """Not under pytest's own directory: as root the embedded server runs as somebody else, who could not get there."""
    folder = Path(mkdtemp(prefix="tarry-demo-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_the_demo_plays_to_its_end_and_explains_an_anomaly(home: Path) -> None:
    named = ("TARRY", "PG", "XDG")
    ran = subprocess.run(
        [sys.executable, "-m", "tarry", "demo"],
        env={**{k: v for k, v in os.environ.items() if not k.startswith(named)}, "HOME": str(home), "COLUMNS": "160"},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[-3000:]
    for said in ("Nothing lost, nothing doubled, nothing early.", "none of them twice", "became a dead letter after"):
        assert said in ran.stdout, ran.stdout[-3000:]
