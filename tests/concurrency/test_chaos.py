"""The long version: two hundred thousand operations under a hundred faults (`make chaos`, minutes).

CHAOS_OPERATIONS and CHAOS_FAULTS ask for more or less; CHAOS_SEED for another order of faults, CHAOS_BINARIES for another
PostgreSQL (18, 16, system). What was written down stays in build/chaos until the next run.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.concurrency.harness import ROOT, Nemesis, crowd, interesting, reckon
from tests.concurrency.recording import read
from tests.storage.fallible import fallible_server

OPERATIONS = int(os.environ.get("CHAOS_OPERATIONS", "200000"))
FAULTS = int(os.environ.get("CHAOS_FAULTS", "100"))
SEED = int(os.environ.get("CHAOS_SEED", "20261115"))
BINARIES = os.environ.get("CHAOS_BINARIES", "18")
BYTES_OF_ONE = 130
"""About what one operation takes to write down."""


@pytest.fixture
def folder() -> Path:
    folder = ROOT / "build" / "chaos"
    shutil.rmtree(folder, ignore_errors=True)
    return folder


@pytest.mark.chaos
def test_no_promise_is_broken_by_a_hundred_faults(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    begun = time.monotonic()
    with fallible_server(BINARIES) as server, crowd(server.dsn, folder, seed=SEED) as clients:
        version = server.version
        clients.start(4)
        clients.start(4, tasks=8)
        nemesis = Nemesis(server, clients, SEED)
        pause = OPERATIONS * BYTES_OF_ONE // FAULTS
        while len(nemesis.faults) < FAULTS or clients.written() < OPERATIONS * BYTES_OF_ONE:
            clients.await_written(pause)
            nemesis.strike_at_random()
        while sum(1 for _ in read(clients.folder)) < OPERATIONS:
            clients.await_written(pause)
        clients.stop()
        loaded = time.monotonic() - begun
        verdict = reckon(server.dsn, clients.folder, nemesis.faults)
    kinds = Counter(fault.kind for fault in nemesis.faults)
    with capsys.disabled():
        print(f"\nPostgreSQL {version}, seed {SEED}, {loaded:.0f} s of load, {time.monotonic() - begun:.0f} s in all")
        print(", ".join(f"{n} × {kind}" for kind, n in kinds.most_common()))
        print(f"\n| count | |\n|---|---|\n{verdict.table()}")
    assert verdict.broken == {}, interesting(verdict)
    assert verdict.operations >= OPERATIONS
    assert verdict.faults >= FAULTS
