"""The big run, as part of `make chaos` (half an hour). `make chaos-run CHAOS="--operations …"` sizes it."""

from __future__ import annotations

import pytest

from tests.chaos.run import DEFAULT, FOLDER, run


@pytest.mark.chaos
def test_no_promise_is_broken_by_three_hundred_faults_of_every_kind(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        result = run(FOLDER, DEFAULT)
        print(f"\n{result.text()}")
    assert result.verdict.broken == {}, result.verdict.explained()
    assert result.verdict.counts["operations"] >= DEFAULT.operations
    assert len(result.faults) >= DEFAULT.faults
