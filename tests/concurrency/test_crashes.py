"""Clients are killed and stand still, sessions end, the database crashes, in the middle of everything: no promise breaks."""

from __future__ import annotations

import random
from pathlib import Path

from tests.concurrency.harness import Nemesis, crowd, interesting, reckon
from tests.concurrency.recording import Fault, now_us
from tests.storage.fallible import fallible_server


def test_killed_and_paused_clients_lose_nothing_and_their_tokens_settle_nothing(database: str, tmp_path: Path) -> None:
    faults: list[Fault] = []
    chance = random.Random(7)
    with crowd(database, tmp_path / "histories") as clients:
        clients.start(3)
        clients.start(1, tasks=8)
        for _ in range(4):
            clients.await_written(60_000)
            begun = now_us()
            clients.kill_one(chance)
            faults.append(Fault("client killed", begun, now_us()))
        with clients.paused(chance):
            begun = now_us()
            while now_us() < begun + 1_300_000:
                clients.await_written(1_000)
            faults.append(Fault("client paused", begun, now_us()))
        clients.await_written(60_000)
        clients.stop()
        verdict = reckon(database, clients.folder, faults)
    assert verdict.broken == {}, interesting(verdict)
    assert verdict.redelivered > 0
    assert verdict.unknown > 0, "nobody was killed in the middle of anything: this proves nothing"


def test_a_crash_of_the_database_breaks_no_promise(tmp_path: Path) -> None:
    with fallible_server() as server, crowd(server.dsn, tmp_path / "histories") as clients:
        clients.start(2)
        clients.start(2, tasks=8)
        nemesis = Nemesis(server, clients, seed=11)
        for kind in ("postmaster killed", "sessions ended", "backend killed", "stopped at once"):
            clients.await_written(100_000)
            nemesis.strike(kind)
        clients.await_written(60_000)
        clients.stop()
        verdict = reckon(server.dsn, clients.folder, nemesis.faults)
    assert verdict.broken == {}, interesting(verdict)
    assert verdict.unknown > 0, "the crashes met nobody: this proves nothing"
