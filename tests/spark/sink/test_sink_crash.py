"""The database crashes between the steps of a write: staged rows are gone, committed ones are not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tarry.app import prepare
from tarry.core.sinking import Rules, StagingLost
from tests.spark.sink_kit import counts, live_keys, new_write, row, sinking, stage, staged_rows
from tests.storage.embedded_kit import Place, kill_server, open_place


@pytest.fixture
def place() -> Iterator[Place]:
    with open_place() as place:
        place.furnish()
        yield place


def opened(place: Place) -> str:
    dsn = place.process().dsn
    prepare(dsn, migrate=True, allow_unsafe=False)
    return dsn


def test_a_crash_between_staging_and_commit_is_noticed_and_the_write_can_be_done_again(place: Place) -> None:
    dsn = opened(place)
    write = new_write()
    staged = stage(dsn, write, [[row("q", "a")], [row("q", "b")]])
    kill_server(place.home)
    dsn = opened(place)
    assert staged_rows(dsn)[0] == 0
    with pytest.raises(StagingLost, match="nothing was merged"):
        sinking(dsn).commit(write, staged, Rules())
    assert live_keys(dsn) == []
    again = new_write(write.write_id)
    assert counts(sinking(dsn).commit(again, stage(dsn, again, [[row("q", "a"), row("q", "b")]]), Rules())) == (
        2,
        0,
        0,
        0,
    )


def test_a_crash_right_after_the_commit_takes_nothing_back_and_nothing_is_done_twice(place: Place) -> None:
    dsn = opened(place)
    write = new_write()
    staged = stage(dsn, write, [[row("q", "a")], [row("q", "b")]])
    done = sinking(dsn).commit(write, staged, Rules())
    kill_server(place.home)
    dsn = opened(place)
    assert live_keys(dsn) == ["a", "b"]
    assert sinking(dsn).commit(write, staged, Rules()) == done
    assert live_keys(dsn) == ["a", "b"]
