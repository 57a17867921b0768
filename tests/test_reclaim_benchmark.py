"""The benchmark of what follows the death of all consumers still runs. How fast is none of a test's business."""

from __future__ import annotations

from benchmarks.reclaim import run
from benchmarks.server import running_server


def test_every_way_reclaims_every_message(database: str) -> None:
    with running_server(database) as server:
        figures = run(server, 50)
    assert [figure.messages for figure in figures] == [50, 50, 50]
