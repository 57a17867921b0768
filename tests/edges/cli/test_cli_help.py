"""Help that is printed at once, fits the screen, and whose examples work; pages of the docs with the same text."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest
from typer.main import get_command

from tarry.edges.cli.exit_codes import ExitCode
from tarry.edges.cli.main import cli
from tarry.edges.cli.registry import ENTRIES
from tests.edges.conftest import Run

ROOT = Path(__file__).parents[3]
REFERENCE = run_path(str(ROOT / "tools/cli-reference"))
HELP = dict(REFERENCE["commands"]())
LEAVES = [path for path in HELP if not any(other.startswith(path + " ") for other in HELP)]
HEAVY = {"psycopg", "psycopg_pool", "psycopg_binary", "pydantic", "pydantic_core", "rich", "msgspec", "asyncio"}


def examples(path: str) -> list[str]:
    block = HELP[path].partition("Examples:\n")[2].partition("\n\n")[0]
    return [line.strip() for line in block.splitlines()]


def test_the_page_of_the_command_line_is_up_to_date() -> None:
    written = (ROOT / "docs/reference/cli.md").read_text()
    hint = "run: tools/cli-reference > docs/reference/cli.md"
    assert written == REFERENCE["page"](), hint


def test_the_page_of_exit_codes_names_every_code() -> None:
    rows = re.findall(r"^\| (\d+) \| ([a-z ]+) \|", (ROOT / "docs/reference/exit-codes.md").read_text(), re.MULTILINE)
    assert {int(code): name for code, name in rows} == {c.value: c.name.lower().replace("_", " ") for c in ExitCode}


def test_every_command_that_was_promised_is_there() -> None:
    promised = """db migrate, db adopt, db status, db sql, queue list, queue show, queue create, queue edit, queue pause,
        queue resume, queue purge, queue delete, queue rename, offer, poll, message show, message timeline, message list,
        message drop, dlq groups, dlq list, dlq show, dlq redrive, dlq discard,
        redrive list, redrive watch, sweeper, doctor, version, message ack, message nack, message touch, message release,
        message bury, message edit, cron trigger, message why, journal tail, audit"""
    assert {f"tarry {' '.join(name.split())}" for name in promised.split(",")} <= set(LEAVES)


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_every_command_has_help_that_equals_the_docs(run: Run, monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for path, text in HELP.items():
        ran = run(*path.split()[1:], option)
        assert (ran.code, ran.err, ran.out) == (0, "", text + "\n"), path


def test_help_begins_with_a_short_sentence_and_fits_the_screen() -> None:
    for path, text in HELP.items():
        lines = text.splitlines()
        summary = next(line.strip() for line in lines[1:] if line.strip())
        assert summary.endswith("."), path
        assert summary[0].isupper(), path
        assert len(summary) <= (60 if path in LEAVES else 70), path
        assert max(map(len, lines)) <= 80, path


def test_help_has_a_purpose_and_examples_on_lines_of_their_own() -> None:
    for path in LEAVES:
        assert "Examples:" not in HELP[path].split("\n\n")[2], path
        assert examples(path), path
        assert all(path in example for example in examples(path)), path


def test_examples_can_be_copied() -> None:
    root = get_command(cli())
    for path in LEAVES:
        for example in examples(path):
            ours = next(part for part in re.split(r"\s[|>]\s", example) if part.strip().startswith("tarry"))
            parse(root, shlex.split(ours, comments=True)[1:])


def parse(command: Any, words: list[str]) -> None:
    """Raises if the command line could not be run as it stands."""
    context = command.make_context("tarry", ["version"])
    while hasattr(command, "get_command"):
        command = command.get_command(context, words[0])
        assert command is not None, words
        words = words[1:]
    command.make_context("it", words, parent=context)


def test_help_imports_nothing_heavy() -> None:
    """What `tarry -h` < 300 ms hangs on, without a stopwatch that a busy machine would upset."""
    code = """
import sys
from tarry.edges.cli.main import main
assert main(["-h"]) == 0
print(*sys.modules, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: tarry")
    loaded = {name.partition(".")[0] for name in done.stderr.split()}
    assert loaded & HEAVY == set()
    ours = {name for name in done.stderr.split() if name.startswith("tarry.")}
    modules = {f"tarry.edges.cli.commands.{module}" for _, *modules in ENTRIES.values() for module in modules}
    assert ours & modules == set()
    assert {name for name in ours if not name.startswith("tarry.edges")} == {"tarry.core", "tarry.core.errors"}


def test_the_list_of_commands_has_the_summaries_of_their_own_help() -> None:
    """It is a table, so that nothing has to be loaded to print it."""
    own = {path.removeprefix("tarry "): " ".join(HELP[path].split("\n\n")[1].split()) for path in HELP}
    assert {name: summary for name, (summary, *_) in ENTRIES.items()} == {name: own[name] for name in ENTRIES}


def test_the_module_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tarry", "version", "--json"], capture_output=True, text=True, check=True
    )
    assert '"tarry.version/1"' in done.stdout


def test_the_version_in_all_forms(run: Run) -> None:
    version = run("version", "--json").data["tarry"]
    assert run("version").fields["tarry"] == version
    assert (run("--version").code, run("--version").out) == (0, f"tarry {version}\n")


def test_a_misspelled_command_is_rejected_with_a_suggestion(run: Run) -> None:
    ran = run("quue", "list")
    assert ran.code == 2
    assert "Did you mean 'queue'" in ran.err
    assert "hint: see: tarry -h" in ran.err


@pytest.mark.parametrize("words", [[], ["queue"], ["db"]], ids=" ".join)
def test_a_command_without_its_verb_shows_help_and_is_a_usage_error(run: Run, words: list[str]) -> None:
    ran = run(*words)
    assert ran.code == 2
    assert ran.out == ""
    assert "Commands:" in ran.err
