"""The files of deploy/: versions, and commands that exist with their options. `make check-deploy` runs linters on them."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from tarry.edges.cli.main import main

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def listed(text: str) -> list[str]:
    """The words of a list in YAML or JSON on one line."""
    return re.findall(r'"([^"]*)"', text)


def commands() -> list[list[str]]:
    compose = (DEPLOY / "compose.yaml").read_text()
    lines = [listed(line) for line in re.findall(r"command: (\[.*\])", compose)]
    for unit in sorted((DEPLOY / "systemd").glob("*.service")):
        (line,) = re.findall(r"ExecStart=\S+/tarry (.*)", unit.read_text())
        lines.append(shlex.split(line.replace("${WORKER}", "shop.tasks:worker")))
    (default,) = re.findall(r"CMD (\[.*\])", (DEPLOY / "Dockerfile").read_text())
    lines.append(listed(default))
    for template in sorted((DEPLOY / "helm/tarry/templates").glob("*.yaml")):
        text = template.read_text().replace("$name", '"scheduler"').replace("$worker.target", '"shop.tasks:worker"')
        lines += [listed(line) for line in re.findall(r"args: (\[.*\])", text)]
        for line in re.findall(r'list ("(?:serve|scheduler)".*)', text):
            words = re.findall(r'(?:^| )"([^" ]*)"', re.sub(r"\([^)]*\)", '"1"', line.partition(" }}")[0]))
            lines.append([word for word in words if word not in ("replicas", "grace", "resources")])
    return lines


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_a_command_of_a_deployment_exists_with_its_options(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--help"]) == 0, capsys.readouterr().err


def test_all_versions_are_the_same() -> None:
    chart = (DEPLOY / "helm/tarry/Chart.yaml").read_text()
    assert re.findall(r'^(?:version|appVersion): "?([^"\n]+)', chart, re.MULTILINE) == [VERSION, VERSION]
    for name in ("compose.yaml", "Dockerfile"):
        assert set(re.findall(r"tarry:(\d[\w.]*)", (DEPLOY / name).read_text())) == {VERSION}
    assert f"## [{VERSION}]" in (ROOT / "CHANGELOG.md").read_text()
