"""Real processes do everything at once under faults, and what they recorded keeps every promise."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.faults import KINDS, QUICK, schedule
from tests.chaos.run import Size, run

SEED = 7


@pytest.mark.timeout(600)
def test_no_promise_is_broken_by_one_fault_of_every_quick_kind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output: list[str] = []
    size = Size(operations=4_000, faults=len(QUICK), seed=SEED, kinds=QUICK, small=True)
    result = run(tmp_path / "histories", size, output.append)
    with capsys.disabled():
        print("".join(f"\n{line}" for line in output if line.startswith("LEFT OUT")), end="")
    assert result.verdict.broken == {}, result.verdict.explained()
    assert len(result.kinds) + len(result.left_out) == len(QUICK)
    counts = result.verdict.counts
    assert counts["operations"] > 4_000
    # Otherwise the faults met nothing, and this would prove nothing.
    for name in ("unknown", "leases", "redelivered", "settles_refused", "keys_linearized", "ticks", "events"):
        assert counts[name] > 0, name


def test_the_seed_of_a_run_determines_its_faults() -> None:
    plan = schedule(1, 300, list(KINDS))
    assert plan == schedule(1, 300, list(KINDS))
    assert plan != schedule(2, 300, list(KINDS))
    assert len(plan) == 300
    assert set(plan) == set(KINDS)
