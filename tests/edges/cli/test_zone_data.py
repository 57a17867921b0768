"""The zone data of schedules, and the warnings where it is missing or old."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tarry import admin
from tarry.storage.postgres.health import CheckResult
from tests.edges.conftest import Run


def data(directory: Path, version: str) -> list[str]:
    """Zone data as a system has it: a file per zone, and one that names the version."""
    (directory / "Europe").mkdir()
    for zone in ("Europe/Berlin", "UTC"):
        (directory / zone).write_bytes(b"TZif")
    (directory / "tzdata.zi").write_text(f"# version {version}\n# This zic input file is in the public domain.\n")
    return [str(directory)]


def test_data_of_this_year_is_as_it_should_be(tmp_path: Path) -> None:
    finding = admin.zones_here(data(tmp_path, "2099a"))
    assert (finding.ok, finding.warning, finding.actual) == (True, False, f"2099a ({tmp_path})")


def test_old_data_is_a_warning_with_a_hint(tmp_path: Path) -> None:
    finding = admin.zones_here(data(tmp_path, "2019c"))
    assert (finding.ok, finding.warning) == (True, True)
    assert "2019c" in finding.actual
    assert "update tzdata" in finding.hint


def test_missing_data_is_a_failure_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tzdata", None)  # as if it were not installed
    finding = admin.zones_here([])
    assert (finding.ok, finding.hint) == (False, "install tzdata: pip install tzdata")


def test_a_scheduler_warns_before_it_plans(cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "warning:" not in cli("scheduler", "--once").err
    old = CheckResult("time zones here", True, "2019c, which is old", "update tzdata", warning=True)
    monkeypatch.setattr(admin, "zones_here", lambda: old)
    ran = cli("scheduler", "--once", "--quiet")
    assert (ran.code, ran.err) == (0, "warning: time zones here: 2019c, which is old; update tzdata\n")
