"""Which batches are merged: by size, whatever their number. No Spark is needed for it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tarry.core.analytics.manifest import Batch, BatchState, LakeFile
from tarry.core.journal.snapshots import BEGINNING, Digest
from tarry.edges.spark.jobs.compact import CompactArgs, groups

QUEUES = 20
MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)
BYTES = 20
"""Of a row in a file."""


def batch(number: int, rows: int, *, system_id: str = "1", at: timedelta = timedelta()) -> Batch:
    day = (MIDNIGHT + at).date()
    files = tuple(
        LakeFile(
            path=f"{number}/{queue}",
            day=day,
            queue_id=queue,
            queue=str(queue),
            rows=max(1, rows // QUEUES),
            checksum=0,
            bytes=rows * BYTES // QUEUES,
        )
        for queue in range(min(rows, QUEUES))
    )
    return Batch(
        number=number, lake="lake", kind="archive", position=number, start=BEGINNING, end=BEGINNING, system_id=system_id,
        state=BatchState.DURABLE, files=files, digest=Digest(rows, 0), max_at=MIDNIGHT + at,
    )  # fmt: skip


def numbers(batches: Iterable[Batch], **args: Any) -> list[list[int]]:
    return [[each.number for each in group] for group in groups(list(batches), CompactArgs(**args))]


def test_neighbours_wait_until_they_are_enough() -> None:
    for gradual in (True, False):
        assert numbers((batch(n, 400) for n in range(7)), gradual=gradual) == []
        assert numbers((batch(n, 400) for n in range(8)), gradual=gradual) == [list(range(8))]


def test_what_was_merged_waits_for_others_of_its_size() -> None:
    merged = batch(7, 8 * 40_000)
    assert numbers([merged, *(batch(8 + n, 40_000) for n in range(7))], gradual=True) == []
    assert numbers([merged, *(batch(8 + n, 40_000) for n in range(8))], gradual=True) == [list(range(8, 16))]
    assert numbers((batch(n, 320_000) for n in range(8)), gradual=True) == [list(range(8))]


def test_by_hand_all_small_neighbours_are_merged_whatever_their_size() -> None:
    assert numbers(batch(n, 10 ** (n % 5)) for n in range(9)) == [list(range(9))]


def test_a_batch_of_the_target_size_is_left_alone() -> None:
    large = QUEUES * 2**20 // BYTES
    mixed = [*(batch(n, 1_000) for n in range(8)), batch(8, large), *(batch(n, 1_000) for n in range(9, 17))]
    assert numbers(mixed, target_mb=1) == [list(range(8)), list(range(9, 17))]


def test_batches_of_two_clusters_or_days_are_never_merged() -> None:
    both = [*(batch(n, 10) for n in range(3)), *(batch(n, 10, system_id="2") for n in range(3, 6))]
    assert numbers(both, at_least=3) == [[0, 1, 2], [3, 4, 5]]
    days = [batch(n, 10, at=timedelta(hours=8 * n)) for n in range(6)]
    assert numbers(days, at_least=3) == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("per_round", [1, 300, 4_096, 17_000, 33_000, 120_000, 700_000])
def test_a_day_of_rounds_at_any_rate_has_few_files_and_rewrites_a_row_a_few_times(per_round: int) -> None:
    """As the manifest lists them after a day of one-minute rounds. The rate varies, so that sizes are around a limit."""
    args = CompactArgs(gradual=True)
    chain: list[Batch] = []
    rows = rewritten = most_files = 0
    for n in range(1_440):
        new = max(1, round(per_round * (0.9 if n % 2 else 1.1)))
        chain.append(batch(n, new, at=timedelta(minutes=n)))
        rows += new
        for group in groups(chain, args):
            at = chain.index(group[0])
            total = sum(each.digest.rows for each in group)
            rewritten += total
            chain[at : at + len(group)] = [batch(group[-1].number, total, at=timedelta(minutes=n))]
        most_files = max(most_files, sum(len(each.files) for each in chain))
    assert sum(each.digest.rows for each in chain) == rows
    assert most_files <= 450
    assert rewritten <= (4 if per_round > 1 else 13) * rows
