"""The program of the page for Python behind a broker, run as it stands there, against one that asks for a key."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tarry.app import AsyncApp
from tarry.core.keys import Action
from tarry.core.settings import StoreSettings
from tarry.edges.http.settings import BrokerSettings
from tarry.storage.memory import AsyncMemoryStore, MemoryStore
from tests.docs.pages import DOCS, blocks
from tests.kit.blocking import Loop
from tests.kit.brokers import broker_on

PAGE = DOCS / "howto" / "use-a-broker-from-python.md"


def test_the_program_of_the_page_does_what_it_says(tmp_path: Path) -> None:
    (text,) = (block.text for block in blocks(PAGE) if block.language == "python")
    (tmp_path / "orders.py").write_text(text)
    behind, loop = MemoryStore(settings=StoreSettings(create_queues=False)), Loop()
    app = AsyncApp(AsyncMemoryStore(behind))
    key = loop.run(app.keys.create("docs", list(Action))).text
    with broker_on(app, loop, BrokerSettings()) as url:
        environment = {**os.environ, "TARRY_URL": url, "TARRY_KEY": key}
        said = subprocess.run(
            [sys.executable, "orders.py"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
    loop.stop()
    assert said.returncode == 0, said.stderr
    assert said.stdout.splitlines() == ["{'total': 40}", "0", "2", "Missed"]
    assert [event.kind.value for event in behind.timeline("orders", "order-17")] == ["offered", "leased", "acked"]
