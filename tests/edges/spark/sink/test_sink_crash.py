"""The database crashes between the steps of a write: staged rows are gone, committed ones are not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tarry.app import prepare
from tarry.core.analytics.bulk_offer import CommitUnit, PartlyStored, Rules, StagingLost
from tests.edges.spark.sink.sink_kit import (
    allow,
    counts,
    live_keys,
    new_write,
    refuse,
    row,
    run_sql,
    sink_of,
    stage,
    staged_rows,
)
from tests.storage.postgres.embedded.embedded_kit import Sandbox, kill_server, open_sandbox


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with open_sandbox() as sandbox:
        sandbox.furnish()
        yield sandbox


def opened(sandbox: Sandbox) -> str:
    dsn = sandbox.process().dsn
    prepare(dsn, migrate=True, allow_unsafe=False)
    return dsn


def test_a_crash_between_staging_and_commit_is_noticed_and_the_write_can_be_done_again(sandbox: Sandbox) -> None:
    dsn = opened(sandbox)
    write = new_write()
    staged = stage(dsn, write, [[row("q", "a")], [row("q", "b")]])
    kill_server(sandbox.home)
    dsn = opened(sandbox)
    assert staged_rows(dsn)[0] == 0
    with pytest.raises(StagingLost, match="0 of them are left; they were not offered"):
        sink_of(dsn).commit(write, staged, Rules())
    assert live_keys(dsn) == []
    again = new_write(write.write_id)
    assert counts(sink_of(dsn).commit(again, stage(dsn, again, [[row("q", "a"), row("q", "b")]]), Rules())) == (
        2,
        0,
        0,
        0,
    )


def test_a_crash_right_after_the_commit_takes_nothing_back_and_nothing_is_done_twice(sandbox: Sandbox) -> None:
    dsn = opened(sandbox)
    write = new_write()
    staged = stage(dsn, write, [[row("q", "a")], [row("q", "b")]])
    done = sink_of(dsn).commit(write, staged, Rules())
    kill_server(sandbox.home)
    dsn = opened(sandbox)
    assert live_keys(dsn) == ["a", "b"]
    assert sink_of(dsn).commit(write, staged, Rules()) == done
    assert live_keys(dsn) == ["a", "b"]


def test_a_crash_between_two_tasks_takes_no_stored_task_back_and_none_is_stored_twice(sandbox: Sandbox) -> None:
    dsn = opened(sandbox)
    parts, rules = [[row("q", "a")], [row("q", "b")]], Rules(commit=CommitUnit.TASK)
    write = new_write()
    staged = stage(dsn, write, parts)
    refuse(dsn, "b")
    with pytest.raises(PartlyStored):
        sink_of(dsn).commit(write, staged, rules)
    allow(dsn)
    kill_server(sandbox.home)
    dsn = opened(sandbox)
    assert live_keys(dsn) == ["a"]
    with pytest.raises(StagingLost, match="1 of 1 tasks had staged 1 rows, and 0 of them are left"):
        sink_of(dsn).commit(write, staged, rules)
    run_sql(dsn, "delete from tarry.message")  # consumed
    again = new_write(write.write_id)
    assert counts(sink_of(dsn).commit(again, stage(dsn, again, parts), rules)) == (2, 0, 0, 0)
    assert live_keys(dsn) == ["b"]
