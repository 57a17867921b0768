"""Which batches are merged: by size, whatever their number. No Spark is needed for it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from typing import Any

from tarry.core.analytics.manifest import Batch, BatchState, LakeFile
from tarry.core.journal.snapshots import BEGINNING, Digest
from tarry.edges.spark.jobs.compact import CompactArgs, groups

QUEUES = 20


def batch(number: int, rows: int, *, system_id: str = "1") -> Batch:
    files = tuple(
        LakeFile(
            path=f"{number}/{queue}",
            day=date(2026, 1, 1),
            queue_id=queue,
            queue=str(queue),
            rows=1,
            checksum=0,
            bytes=1,
        )
        for queue in range(QUEUES)
    )
    return Batch(
        number=number, lake="lake", kind="archive", position=number, start=BEGINNING, end=BEGINNING, system_id=system_id,
        state=BatchState.DURABLE, files=files, digest=Digest(rows, 0),
    )  # fmt: skip


def numbers(batches: Iterable[Batch], **args: Any) -> list[list[int]]:
    return [[each.number for each in group] for group in groups(list(batches), CompactArgs(**args))]


def test_neighbours_wait_until_they_are_enough() -> None:
    assert numbers((batch(n, 10) for n in range(7)), at_least=8) == []
    assert numbers((batch(n, 10) for n in range(8)), at_least=8) == [list(range(8))]


def test_a_group_that_cannot_grow_is_merged_however_few_it_has() -> None:
    """One-minute rounds of 30,000 events: 33 of them are a million, and 60 were never reached."""
    rounds = [batch(n, 30_000) for n in range(40)]
    assert numbers(rounds, at_least=60) == [list(range(33))]
    assert numbers([batch(0, 10), batch(1, 10), batch(2, 2_000_000), batch(3, 10)], at_least=60) == [[0, 1]]


def test_what_was_merged_is_not_merged_again() -> None:
    merged = [batch(0, 990_000), batch(33, 990_000), *(batch(66 + n, 30_000) for n in range(9))]
    assert numbers(merged, at_least=60) == []


def test_batches_of_two_clusters_are_never_merged() -> None:
    both = [*(batch(n, 10) for n in range(3)), *(batch(n, 10, system_id="2") for n in range(3, 6))]
    assert numbers(both, at_least=3) == [[0, 1, 2], [3, 4, 5]]


def test_a_day_at_any_rate_has_files_by_its_size() -> None:
    """As the manifest lists them after a day of one-minute rounds, with a file per queue and batch."""
    args = CompactArgs(at_least=60)
    for per_round in (300, 17_000, 120_000, 700_000):
        chain: list[Batch] = []
        for n in range(1_440):
            chain.append(batch(n, per_round))
            for group in groups(chain, args):
                at = chain.index(group[0])
                chain[at : at + len(group)] = [batch(group[-1].number, sum(each.digest.rows for each in group))]
        millions = 1_440 * per_round / args.target_rows
        assert len(chain) <= 60 + 2 * millions
