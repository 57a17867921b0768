"""The program of the page for Python behind a broker, run as it stands there, against one that requires a key."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tarry.app import AsyncApp
from tarry.core.security.api_keys import Action
from tarry.core.settings import StoreSettings
from tarry.edges.http.settings import BrokerSettings
from tarry.storage.memory import AsyncMemoryStore, MemoryStore
from tests.docs.pages import DOCS, blocks
from tests.kit.blocking import Loop
from tests.kit.brokers import broker_on

PAGE = DOCS / "howto" / "use-a-broker-from-python.md"


def test_the_program_of_the_page_works_as_documented(tmp_path: Path) -> None:
    (text,) = (block.text for block in blocks(PAGE) if block.language == "python")
    (tmp_path / "orders.py").write_text(text)
    behind, loop = MemoryStore(settings=StoreSettings(create_queues=False)), Loop()
    app = AsyncApp(AsyncMemoryStore(behind))
    key = loop.run(app.keys.create("docs", list(Action))).text
    with broker_on(app, loop, BrokerSettings()) as url:
        environment = {**os.environ, "TARRY_URL": url, "TARRY_KEY": key}
        completed = subprocess.run(
            [sys.executable, "orders.py"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
    loop.stop()
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.splitlines() == ["{'total': 40}", "0", "2", "Gap"]
    assert [event.kind.value for event in behind.run(behind.journal.timeline("orders", "order-17"))] == [
        "offered",
        "leased",
        "acked",
    ]
