"""The benchmark of large backlogs still runs. How fast is none of a test's business."""

from __future__ import annotations

import pytest

from benchmarks.capacity import main


def test_every_part_prints_its_rows(database: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--dsn", database, "--dead", "20", "--expired", "10", "--queues", "12"])
    printed = capsys.readouterr().out
    for row in (
        "| `wait` |",
        "| `counts` |",
        "| swept |",
        "| polled again, no sweeper |",
        "| list all |",
        "| a sweep of all |",
    ):
        assert row in printed
