"""The programs of the page for other languages, run as they stand there against a broker that requires a key."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry.app import AsyncApp
from tarry.core.settings import StoreSettings
from tarry.edges.http.settings import BrokerSettings
from tarry.storage.memory import AsyncMemoryStore, MemoryStore
from tests.docs.pages import DOCS, blocks
from tests.kit.blocking import Loop
from tests.kit.brokers import broker_on

PAGE = DOCS / "howto" / "use-from-other-languages.md"
HOW = {
    "bash": ("orders.sh", ["bash", "-eu", "orders.sh"]),
    "javascript": ("orders.mjs", ["node", "orders.mjs"]),
    "go": ("orders.go", ["go", "run", "orders.go"]),
    "java": ("Orders.java", ["java", "-XX:TieredStopAtLevel=1", "Orders.java"]),
}


@pytest.fixture
def behind() -> MemoryStore:
    return MemoryStore(settings=StoreSettings(create_queues=False))


@pytest.fixture
def environment(behind: MemoryStore) -> Iterator[dict[str, str]]:
    loop, app = Loop(), AsyncApp(AsyncMemoryStore(behind))
    key = loop.run(app.keys.create("docs", ["produce", "consume"], ["orders"])).text
    with broker_on(app, loop, BrokerSettings()) as url:
        yield {**os.environ, "TARRY_URL": url, "TARRY_KEY": key}
    loop.stop()


def test_the_page_has_a_program_for_each_language() -> None:
    assert [block.language for block in blocks(PAGE)] == list(HOW)


@pytest.mark.parametrize("language", HOW)
def test_a_program_offers_polls_touches_fails_and_finishes(
    behind: MemoryStore, environment: dict[str, str], tmp_path: Path, language: str
) -> None:
    file, command = HOW[language]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed here")
    (text,) = (block.text for block in blocks(PAGE) if block.language == language)
    (tmp_path / file).write_text(text)
    completed = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=90, check=False
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    events = behind.run(behind.journal.timeline("orders", "order-17"))
    assert [event.kind.value for event in events] == [
        "offered", "leased", "touched", "nacked", "leased", *(["touched"] if language != "bash" else []), "acked",
    ]  # fmt: skip
    assert "card declined" in (events[3].error or "")
    forgotten = behind.run(behind.security.forget_responses(-behind.settings.connect_for))
    assert forgotten == 1, "the offer had no key of its own"
