"""Every Python program that a page offers to copy runs as it is."""

from __future__ import annotations

import asyncio
import html
import re
from contextlib import suppress
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from benchmarks.dashboard.fill import Sizes, derive, fill
from benchmarks.dashboard.pages import PATHS
from tarry.core.errors import TarryError
from tests.edges.dashboard.conftest import Served

SIZES = Sizes(
    messages=20, events=600, dead=20, queues=2, consumers=2, schedules=2, anomalies=2, runs=1, audits=1, redrives=1,
    bulk_jobs=1,
)  # fmt: skip


def shown(address: str) -> str:
    try:
        with urlopen(address) as page:
            return page.read().decode()
    except HTTPError as error:
        if error.code == 404:  # a page about one thing that this small database does not have
            return ""
        raise


def programs(text: str) -> list[str]:
    blocks = [html.unescape(block) for block in re.findall(r"<code>(.*?)</code>", text, re.DOTALL)]
    return [block for block in blocks if "import tarry" in block]


def test_every_action_is_offered_in_other_tools_and_every_program_runs(
    dashboard: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(dashboard.dsn, SIZES)
    asyncio.run(derive(dashboard.dsn, SIZES))
    monkeypatch.setenv("TARRY_DSN", dashboard.dsn)
    jobs = ("/redrives/1", "/messages/jobs/1", "/queues/queue-00000/settings?lease_for=45s&retry_factor=3")
    pages = {path: shown(f"{dashboard.url}{path}") for path in (*PATHS, *jobs)}
    copied = {program: path for path, text in pages.items() for program in programs(text)}
    assert len(copied) >= 30
    dialogs = [dialog for text in pages.values() for dialog in re.findall("<dialog.*?</dialog>", text, re.DOTALL)]
    actions = {action[1]: dialog for dialog in dialogs if (action := re.search('action="([^"]*)"', dialog))}
    assert len(actions) >= 10
    assert [action for action, dialog in actions.items() if 'class="copy-as"' not in dialog] == []
    assert "--lease-for 45s --retry-factor 3" in pages[jobs[-1]]
    for program, path in copied.items():
        try:
            with suppress(TarryError):  # a program before this one may have removed its subject
                exec(compile(program, path, "exec"), {})
        except Exception as error:
            raise AssertionError(f"on {path}:\n{program}") from error
