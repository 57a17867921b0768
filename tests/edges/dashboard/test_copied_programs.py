"""Every Python program and every request that a page offers to copy runs as it is."""

from __future__ import annotations

import asyncio
import html
import json
import re
import subprocess
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from benchmarks.dashboard.fill import Sizes, derive, fill
from benchmarks.dashboard.pages import QUEUE, paths_of
from tarry.core.errors import TarryError
from tarry.edges.dashboard import commands
from tarry.edges.dashboard.screens import archive
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
    return [block for block in blocks if "import tarry" in block or "from tarry import" in block]


def requests(text: str) -> list[str]:
    blocks = [html.unescape(block) for block in re.findall(r"<code>(.*?)</code>", text, re.DOTALL)]
    return [block for block in blocks if block.startswith("curl ")]


def status_of(request: str) -> int:
    """In a terminal without a key."""
    command = f"unset TARRY_KEY; {request} -s -o /dev/null -w '%{{http_code}}'"
    return int(subprocess.run(["sh", "-c", command], capture_output=True, check=True).stdout)


def test_every_action_is_offered_in_other_tools_and_every_program_runs(
    dashboard: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(dashboard.dsn, SIZES)
    asyncio.run(derive(dashboard.dsn, SIZES))
    monkeypatch.setenv("TARRY_DSN", dashboard.dsn)
    changed = "/queues/queue-00000/settings?lease_for=45s&retry_factor=3"
    letters = json.loads(shown(f"{dashboard.url}/queues/{QUEUE}/dead.json?limit=1"))
    pages = {path: shown(f"{dashboard.url}{path}") for path in (*paths_of(letters), changed)}
    copied = {program: path for path, text in pages.items() for program in programs(text)}
    assert len(copied) >= 30
    assert any("@pytest.fixture" in program for program in copied)
    dialogs = [dialog for text in pages.values() for dialog in re.findall("<dialog.*?</dialog>", text, re.DOTALL)]
    actions = {action[1]: dialog for dialog in dialogs if (action := re.search('action="([^"]*)"', dialog))}
    assert len(actions) >= 10
    assert [action for action, dialog in actions.items() if 'class="copy-as"' not in dialog] == []
    assert "--lease-for 45s --retry-factor 3" in pages[changed]
    lists = {path: text for path, text in pages.items() if 'class="formats"' in text}
    assert len(lists) >= 20
    assert [
        path
        for path, text in lists.items()
        if 'class="copy-as"' not in re.sub("<dialog.*?</dialog>", "", text, flags=re.DOTALL)
    ] == []
    files = {link for text in lists.values() for link in re.findall(r'<span class="formats">(.*?)</span>', text)}
    links = {html.unescape(link) for both in files for link in re.findall(r'href="([^"]+)"', both)}
    assert len(links) >= 40
    for link in links:
        with urlopen(f"{dashboard.url.removesuffix('/dashboard')}{link}") as response:
            kind = "application/json" if ".json" in link.split("?")[0] else "text/csv"
            assert response.headers["content-type"].startswith(kind), link
    for program, path in copied.items():
        try:
            with suppress(TarryError):  # a program before this one may have removed its subject
                names: dict[str, Any] = {}
                exec(compile(program, path, "exec"), names)
                if "@pytest.fixture" in program:
                    app = next(names["app"].__wrapped__())
                    assert app.queue("queue-00001").try_poll() is not None
        except Exception as error:
            raise AssertionError(f"on {path}:\n{program}") from error
    copied = {request: path for path, text in pages.items() for request in requests(text)}
    assert len(copied) >= 60
    statuses = {request: status_of(request) for request in copied}
    assert {
        request for request, status in statuses.items() if status not in (200, 201, 202, 204, 303, 404, 409)
    } == set()


def test_the_program_for_the_archive_reads_what_its_log_lists(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = tmp_path / "it's a lake"
    rows = pa.table({"key": ["archived"], "date": [date(2026, 1, 5)]})
    write_deltalake(lake / "events", rows, partition_by=["date"])
    killed = lake / "events" / "date=2026-01-05" / "of-a-killed-run.parquet"
    pq.write_table(pa.table({"key": ["killed"]}), killed)
    exec(archive.program(str(lake)), {})
    printed = capsys.readouterr().out
    assert "archived" in printed
    assert "killed" not in printed


def test_a_query_is_added_to_an_address_that_has_one() -> None:
    assert commands.curl("http://host/archive.csv?range=6h", query={"sql": "select 1"}).split()[1] == (
        "'http://host/archive.csv?range=6h&sql=select+1'"
    )
