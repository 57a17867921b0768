"""The benchmark of what follows the death of all consumers still runs. How fast is none of a test's business."""

from __future__ import annotations

from benchmarks.reclaim import run


def test_every_way_reclaims_every_message(database: str) -> None:
    figures = run(50, database)
    assert [figure.messages for figure in figures] == [50, 50, 50]
