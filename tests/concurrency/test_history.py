"""Real processes do everything at once, and what they wrote down keeps every promise. First without any fault."""

from __future__ import annotations

from pathlib import Path

from tests.concurrency.harness import crowd, interesting, reckon


def test_nothing_is_broken_while_nothing_breaks(database: str, tmp_path: Path) -> None:
    with crowd(database, tmp_path / "histories") as clients:
        clients.start(3)
        clients.start(2, tasks=8)
        clients.await_written(500_000)
        clients.stop()
        verdict = reckon(database, clients.folder, [])
    assert verdict.broken == {}, interesting(verdict)
    assert verdict.operations > 1_500
    assert verdict.leases > 300
    assert verdict.redelivered > 0
    assert verdict.refused > 0
    assert verdict.unknown == 0
