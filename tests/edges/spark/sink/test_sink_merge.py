"""Staging and merging, without Spark: which attempt is merged, how often, and what is left behind."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TypeVar
from uuid import uuid4

import psycopg
import pytest

from tarry import Conflict
from tarry.app import App
from tarry.core.analytics.bulk_offer import (
    MERGES,
    BadRows,
    CommitUnit,
    PartlyStored,
    Rules,
    SinkWrite,
    Staged,
    StagedRow,
    StagingLost,
    Write,
    WriteState,
    disjoint_groups,
)
from tarry.core.errors import InvalidInput, InvalidState, StoreUnavailable
from tarry.core.messages.model import EARLIEST, KEEP
from tarry.core.settings import QueueSettings
from tarry.storage.postgres.analytics.database import Database
from tarry.storage.postgres.analytics.sink.bulk_offer import PostgresSink
from tarry.storage.postgres.statement import Op
from tests.edges.spark.sink.sink_kit import (
    allow,
    counts,
    live_keys,
    new_write,
    number,
    offered,
    refuse,
    row,
    run_sql,
    sink_of,
    stage,
    staged_rows,
)
from tests.kit.sleepers import until
from tests.kit.steps import MINUTE, all_at_once, take

R = TypeVar("R")


class TestCommit:
    def test_what_was_staged_is_offered_and_nothing_stays_behind(self, database: str) -> None:
        assert counts(offered(database, [[row("q", "a"), row("q", "b")], [row("q", "c")]])) == (3, 0, 0, 0)
        assert live_keys(database) == ["a", "b", "c"]
        assert staged_rows(database) == (0, 0)

    def test_only_the_attempts_that_the_driver_names_are_merged(self, database: str) -> None:
        write = new_write()
        first_try = stage(database, write, [[row("q", "a")], [row("q", "b")]])
        second_try = stage(database, write, [[row("q", "a", "again")]])
        done = sink_of(database).commit(write, [second_try[0], first_try[1]], Rules())
        assert counts(done) == (2, 0, 0, 0)
        assert run_sql(database, "select payload from tarry.message where key = 'a'") == [(b'"again"',)]
        assert staged_rows(database) == (0, 0)

    def test_a_write_of_no_rows_is_committed_too(self, database: str) -> None:
        done = sink_of(database).commit(new_write(), [], Rules())
        assert done.committed
        assert counts(done) == (0, 0, 0, 0)

    def test_a_repeated_commit_returns_the_first_outcome_and_does_nothing(
        self, database: str, pipeline_app: App
    ) -> None:
        write = new_write()
        staged = stage(database, write, [[row("q", "a")]])
        first = sink_of(database).commit(write, staged, Rules())
        take(pipeline_app.queue("q")).ack()
        assert sink_of(database).commit(write, staged, Rules()) == first
        assert live_keys(database) == []

    def test_a_second_driver_with_the_same_write_does_nothing(self, database: str) -> None:
        offered_once = new_write()
        sink_of(database).commit(offered_once, stage(database, offered_once, [[row("q", "a")]]), Rules())
        again = new_write(offered_once.write_id)
        assert sink_of(database).begin(again).committed
        assert stage(database, again, [[row("q", "a", "other")]]) == []
        assert counts(sink_of(database).commit(again, [], Rules())) == (1, 0, 0, 0)
        assert number(database, "select count(*) from tarry.event where kind in ('offered', 'updated')") == 1

    def test_one_of_many_concurrent_drivers_merges_and_all_get_the_same_outcome(self, database: str) -> None:
        runs = [new_write() for _ in range(4)]
        staged = [stage(database, run, [[row("q", f"{i}-{j}") for j in range(3)]]) for i, run in enumerate(runs)]
        outcomes = all_at_once(
            [
                lambda run=run, rows=rows: sink_of(database).commit(run, rows, Rules())
                for run, rows in zip(runs, staged, strict=True)
            ]
        )
        assert len(set(outcomes)) == 1
        assert len(live_keys(database)) == 3
        assert staged_rows(database) == (0, 0)

    def test_versions_are_in_the_order_of_the_frame_whatever_the_order_of_keys(self, database: str) -> None:
        offered(database, [[row("q", "z"), row("p", "y")], [row("q", "a"), row("q", "b")]])
        assert run_sql(database, "select key from tarry.message order by version") == [("z",), ("y",), ("a",), ("b",)]

    def test_versions_others_took_meanwhile_are_not_given_out_twice(self, database: str, pipeline_app: App) -> None:
        def offers() -> None:
            for n in range(100):
                pipeline_app.queue("other").offer(f"o{n}", n)

        rows = [row("q", f"k{n:03}") for n in range(300)]
        all_at_once([offers, lambda: offered(database, [rows[:100], rows[100:]]), lambda: offered(database, [rows])])
        taken = run_sql(database, "select version from tarry.event where version is not null")
        assert len(set(taken)) == len(taken)

    def test_missing_queues_are_created_with_the_merge(self, database: str) -> None:
        offered(database, [[row("new", "a")]])
        assert number(database, "select count(*) from tarry.event where kind = 'queue_created'") == 1

    def test_or_refused_with_nothing_stored(self, database: str, pipeline_app: App) -> None:
        pipeline_app.queues.create("known", QueueSettings())
        with pytest.raises(BadRows, match=r"2 of the 3 queues .* do not exist, and nothing was stored: one, two"):
            offered(database, [[row("known", "a"), row("one", "a")], [row("two", "a")]], Rules(create_queues=False))
        assert live_keys(database) == []


class TestTheSameKeyTwice:
    def test_the_last_row_wins_across_parts(self, database: str) -> None:
        parts = [[row("q", "a", 1), row("q", "a", 2)], [row("q", "a", 3)], [row("p", "a", 4)]]
        assert counts(offered(database, parts)) == (2, 0, 0, 2)
        assert run_sql(database, "select payload from tarry.message order by version") == [(b"3",), (b"4",)]

    def test_the_first_stays_where_rows_keep(self, database: str) -> None:
        done = offered(database, [[row("q", "a", 1)], [row("q", "a", 2)]], Rules(conflict=KEEP))
        assert counts(done) == (1, 0, 1, 0)
        assert run_sql(database, "select payload from tarry.message") == [(b"1",)]

    def test_the_earliest_stays_and_those_it_outdid_were_superseded(self, database: str) -> None:
        waits = [9, 5, 7, 3, 3]
        parts = [[row("q", "a", n, after=wait * MINUTE)] for n, wait in enumerate(waits)]
        assert counts(offered(database, parts, Rules(conflict=EARLIEST))) == (1, 0, 2, 2)
        assert run_sql(database, "select payload from tarry.message") == [(b"3",)]

    def test_debounce_is_limited_from_the_merge_on(self, database: str) -> None:
        parts = [[row("q", "a", 1, after=9 * MINUTE), row("q", "a", 2, after=5 * MINUTE)]]
        assert counts(offered(database, parts, Rules(conflict=Conflict.debounce(MINUTE)))) == (1, 0, 0, 1)
        assert run_sql(database, "select payload, due_at - created_at, due_limit = due_at from tarry.message") == [
            (b"2", MINUTE, True)
        ]


class TestLosses:
    def test_rows_that_a_crash_took_are_missed_and_nothing_is_merged(self, database: str) -> None:
        write = new_write()
        staged = stage(database, write, [[row("q", "a")], [row("q", "b"), row("q", "c")]])
        run_sql(database, "truncate tarry.sink_row")  # what a crash does to an unlogged table
        with pytest.raises(StagingLost, match=r"2 of 2 tasks had staged 3 rows, and 0 of them are left; they were not"):
            sink_of(database).commit(write, staged, Rules())
        assert live_keys(database) == []
        outcome = sink_of(database).outcome(write.write_id)
        assert outcome is not None
        assert outcome.state is WriteState.STAGING

    def test_after_it_the_same_write_can_be_done_again(self, database: str) -> None:
        write = new_write()
        staged = stage(database, write, [[row("q", "a")]])
        run_sql(database, "truncate tarry.sink_row")
        with pytest.raises(StagingLost):
            sink_of(database).commit(write, staged, Rules())
        sink_of(database).abort(write)
        again = new_write(write.write_id)
        assert counts(sink_of(database).commit(again, stage(database, again, [[row("q", "a")]]), Rules())) == (
            1,
            0,
            0,
            0,
        )

    def test_a_row_more_than_announced_is_as_bad_as_one_less(self, database: str) -> None:
        write = new_write()
        staged = stage(database, write, [[row("q", "a")]])
        run_sql(database, "insert into tarry.sink_row select * from tarry.sink_row")
        with pytest.raises(StagingLost):
            sink_of(database).commit(write, staged, Rules())

    def test_a_merge_that_fails_leaves_everything_as_it_was(self, database: str) -> None:
        write = new_write()
        staged = stage(database, write, [[row("p", "a")], [row("q", "b")]])
        run_sql(database, "alter table tarry.message add constraint no_b check (key <> 'b')")
        with pytest.raises(psycopg.errors.CheckViolation):
            sink_of(database).commit(write, staged, Rules())
        assert live_keys(database) == []
        assert number(database, "select count(*) from tarry.event") == 0
        run_sql(database, "alter table tarry.message drop constraint no_b")
        assert counts(sink_of(database).commit(write, staged, Rules())) == (2, 0, 0, 0)


BY_TASK = Rules(commit=CommitUnit.TASK)


def half_stored(database: str, parts: Sequence[Sequence[StagedRow]], refused: str) -> Write:
    """A write that has stored its first tasks, until the one with this key."""
    write = new_write()
    staged = stage(database, write, parts)
    refuse(database, refused)
    with pytest.raises(PartlyStored):
        sink_of(database).commit(write, staged, BY_TASK)
    allow(database)
    return write


def merge_again(database: str, write: Write, parts: Sequence[Sequence[StagedRow]], rules: Rules = BY_TASK) -> SinkWrite:
    """Another driver with the same write."""
    again = new_write(write.write_id)
    return sink_of(database).commit(again, stage(database, again, parts), rules)


class LosesReplies(Database):
    """Every transaction is executed. The reply to the second, the merge of a task, is lost, and its messages are consumed."""

    transactions = 0

    def transact(self, op: Op[R]) -> R:
        result = super().transact(op)
        self.transactions += 1
        if self.transactions == 2:
            run_sql(self.dsn, "delete from tarry.message")
            raise StoreUnavailable("server closed the connection unexpectedly")
        return result


class TestTaskByTask:
    def test_every_task_is_stored_in_a_transaction_of_its_own(self, database: str) -> None:
        parts = [[row("q", f"a{n}"), row("p", f"b{n}")] for n in range(2 * MERGES)]
        done = offered(database, parts, BY_TASK)
        assert counts(done) == (4 * MERGES, 0, 0, 0)
        assert len(live_keys(database)) == done.rows == 4 * MERGES
        transactions = "select count(distinct xid) from tarry.event where kind = 'offered'"
        assert number(database, transactions) == 2 * MERGES
        assert staged_rows(database) == (0, 0)

    def test_the_same_key_in_two_tasks_is_two_offers_and_the_last_commit_wins(self, database: str) -> None:
        parts = [[row("q", "a", n), row("q", "a", n + 1)] for n in (1, 3, 5)]
        assert counts(offered(database, parts, BY_TASK)) == (1, 2, 0, 3)
        assert run_sql(
            database, "select count(*), max(event.version) = max(m.version) from tarry.event, tarry.message m"
        ) == [
            (4, True)  # with the creation of the queue
        ]

    def test_tasks_with_the_same_keys_in_any_order_do_not_deadlock(self, database: str) -> None:
        keys = [(f"k{n:03}", queue) for n in range(300) for queue in ("p", "q")]
        parts = [[row(queue, key, part) for key, queue in random.Random(part).sample(keys, 600)] for part in range(8)]
        done = offered(database, parts, BY_TASK)
        assert (done.rows, done.created, done.updated) == (4_800, 600, 4_200)
        assert len(live_keys(database)) == 600

    def test_a_failure_leaves_whole_tasks_and_states_their_number(self, database: str) -> None:
        write = new_write()
        staged = stage(database, write, [[row("q", "a"), row("q", "b")], [row("q", "c"), row("q", "d")]])
        refuse(database, "d")
        with pytest.raises(
            PartlyStored, match=r"(?s)at least 1 of 2 tasks are stored, with 2 of 4 rows: .*refused.*same write"
        ):
            sink_of(database).commit(write, staged, BY_TASK)
        assert live_keys(database) == ["a", "b"]
        sink_of(database).abort(write)
        outcome = sink_of(database).outcome(write.write_id)
        assert outcome is not None
        assert outcome.state is WriteState.ABORTED
        assert staged_rows(database) == (0, 1), "the record of the stored task is left"

    @pytest.mark.parametrize("unit", list(CommitUnit))
    def test_a_repetition_stores_the_others_also_if_the_first_were_consumed(
        self, database: str, pipeline_app: App, unit: CommitUnit
    ) -> None:
        parts = [[row("q", "a"), row("q", "b")], [row("q", "c"), row("q", "d")]]
        write = half_stored(database, parts, "d")
        for delivery in pipeline_app.queue("q").try_poll_many(9):
            delivery.ack()
        in_another_order = [list(reversed(part)) for part in parts]
        done = merge_again(database, write, in_another_order, Rules(commit=unit))
        assert counts(done) == (4, 0, 0, 0)
        assert live_keys(database) == ["c", "d"]
        assert merge_again(database, write, parts) == done
        assert live_keys(database) == ["c", "d"]
        assert staged_rows(database) == (0, 0)

    @pytest.mark.parametrize(
        "parts",
        [
            [[("a", 0)], [("b", 0), ("c", 0), ("d", 0)]],
            [[("c", 0), ("d", 0)], [("a", 0), ("b", 0)]],
            [[("a", 0), ("b", 0), ("b", 0)], [("c", 0), ("d", 0)]],
            [[], [("a", 0), ("b", 0), ("c", 0), ("d", 0)]],
        ],
        ids=["fewer rows", "another order of tasks", "a row more", "none"],
    )
    def test_a_repetition_with_other_rows_in_a_stored_task_is_refused(
        self, database: str, parts: list[list[tuple[str, int]]]
    ) -> None:
        write = half_stored(database, [[row("q", "a"), row("q", "b")], [row("q", "c"), row("q", "d")]], "d")
        before = run_sql(database, "select key, version from tarry.message")
        with pytest.raises(
            InvalidState, match="has stored 1 tasks before, and 1 of them have other rows now, as task 0"
        ):
            merge_again(database, write, [[row("q", key, n) for key, n in part] for part in parts])
        assert run_sql(database, "select key, version from tarry.message") == before

    def test_generated_keys_are_not_compared_but_the_payloads_of_their_rows_are(self, database: str) -> None:
        def generated(*payloads: int) -> list[StagedRow]:
            return [(*row("q", f"{uuid4()}", payload)[:-1], True) for payload in payloads]

        write = half_stored(database, [generated(1, 2), [row("q", "d")]], "d")
        with pytest.raises(InvalidState, match="other rows"):
            merge_again(database, write, [generated(1, 3), [row("q", "d")]])
        assert counts(merge_again(database, write, [generated(2, 1), [row("q", "d")]])) == (3, 0, 0, 0)
        assert len(live_keys(database)) == 3

    def test_a_merge_whose_reply_was_lost_is_not_repeated(self, database: str) -> None:
        write = new_write()
        staged = stage(database, write, [[row("q", "a")]])
        losing = LosesReplies(database)
        assert counts(PostgresSink(losing).commit(write, staged, BY_TASK)) == (1, 0, 0, 0)
        assert losing.transactions > 3, "it was retried"
        assert live_keys(database) == []
        assert number(database, "select count(*) from tarry.event where kind = 'offered'") == 1

    def test_of_many_concurrent_drivers_all_store_each_row_once(self, database: str, pipeline_app: App) -> None:
        parts = [[row("q", f"{part}-{n}") for n in range(20)] for part in range(6)]
        runs = [new_write() for _ in range(4)]
        staged = [stage(database, run, parts) for run in runs]

        def commit(run: Write, rows: list[Staged]) -> str:
            try:
                return str(counts(sink_of(database).commit(run, rows, BY_TASK)))
            except (PartlyStored, StagingLost) as error:
                return type(error).__name__

        results = all_at_once(
            [lambda run=run, rows=rows: commit(run, rows) for run, rows in zip(runs, staged, strict=True)]
        )
        assert set(results) <= {"(120, 0, 0, 0)", "PartlyStored", "StagingLost"}
        assert merge_again(database, runs[0], parts).created == 120
        assert number(database, "select count(*) from tarry.event where kind in ('offered', 'updated')") == 120

    def test_a_driver_that_was_overtaken_stores_nothing_more(self, database: str) -> None:
        parts = [[row("q", "a")], [row("q", "b")]]
        late = new_write()
        staged = stage(database, late, parts)
        done = merge_again(database, late, parts)
        run_sql(database, "delete from tarry.message")
        assert sink_of(database).commit(late, staged, BY_TASK) == done
        assert live_keys(database) == []

    def test_the_sweep_keeps_the_record_of_stored_tasks_until_the_write_is_committed(self, database: str) -> None:
        parts = [[row("q", "a")], [row("q", "d")]]
        write = half_stored(database, parts, "d")
        assert sink_of(database).sweep(timedelta(0)) == 1
        assert staged_rows(database) == (0, 1)
        assert counts(merge_again(database, write, parts)) == (2, 0, 0, 0)
        assert staged_rows(database) == (0, 0)


class TestLeftBehind:
    def test_an_abort_forgets_its_own_run_only(self, database: str) -> None:
        mine, other = new_write(), new_write()
        stage(database, mine, [[row("q", "mine")]])
        staged = stage(database, other, [[row("q", "other")]])
        sink_of(database).abort(mine)
        assert staged_rows(database) == (1, 1)
        assert counts(sink_of(database).commit(other, staged, Rules())) == (1, 0, 0, 0)
        assert live_keys(database) == ["other"]

    def test_an_abort_after_the_commit_changes_nothing(self, database: str) -> None:
        write = new_write()
        done = sink_of(database).commit(write, stage(database, write, [[row("q", "a")]]), Rules())
        sink_of(database).abort(write)
        assert sink_of(database).outcome(write.write_id) == done

    @pytest.mark.parametrize("verb", ["abort", "sweep"])
    def test_rows_that_a_task_commits_while_its_attempt_is_deleted_do_not_stay(self, database: str, verb: str) -> None:
        write, sink = new_write(), sink_of(database)
        deletions: dict[str, Callable[[], object]] = {
            "abort": lambda: sink.abort(write),
            "sweep": lambda: sink.sweep(timedelta(0)),
        }
        with ThreadPoolExecutor(1) as pool, sink_of(database).attempt(write, 0) as staging:
            staging.add([row("q", "a")])

            def rows_of_an_open_transaction() -> Iterator[StagedRow]:
                yield row("q", "b")
                deletion = pool.submit(deletions[verb])
                waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
                until(lambda: deletion.done() or number(database, waits))

            staging.add(rows_of_an_open_transaction())
        sink.sweep(timedelta(0))
        assert staged_rows(database) == (0, 0)

    def test_a_task_that_was_aborted_cannot_go_on(self, database: str) -> None:
        write = new_write()
        with sink_of(database).attempt(write, 0) as staging:
            staging.add([row("q", "a")])
            sink_of(database).abort(write)
            with pytest.raises(InvalidState, match="while this task was staging"):
                staging.add([row("q", "b")])
        assert staged_rows(database) == (0, 0)

    def test_the_sweep_takes_what_is_old_and_leaves_what_is_young(self, database: str) -> None:
        old, young = new_write("old"), new_write("young")
        stage(database, old, [[row("q", "a")]])
        stage(database, young, [[row("q", "b")]])
        run_sql(
            database,
            "update tarry.sink_attempt set started_at = started_at - interval '2 days' where run = %s",
            old.run,
        )
        run_sql(
            database, "update tarry.sink_write set started_at = started_at - interval '2 days' where write_id = 'old'"
        )
        assert sink_of(database).sweep() == 1
        assert staged_rows(database) == (1, 1)
        assert dict(run_sql(database, "select write_id, state from tarry.sink_write")) == {
            "old": "aborted",
            "young": "staging",
        }

    def test_the_sweep_keeps_off_what_a_merge_is_holding(self, database: str) -> None:
        stage(database, new_write(), [[row("q", "a")]])
        with psycopg.connect(database) as merging:
            merging.execute("select from tarry.sink_attempt for key share")
            assert sink_of(database).sweep(timedelta(0)) == 0
        assert sink_of(database).sweep(timedelta(0)) == 1

    def test_every_commit_sweeps(self, database: str) -> None:
        stage(database, new_write("dead"), [[row("q", "a")]])
        run_sql(database, "update tarry.sink_attempt set started_at = started_at - interval '2 days'")
        offered(database, [[row("q", "b")]])
        assert staged_rows(database) == (0, 0)

    def test_of_a_stream_the_last_batch_is_remembered_and_a_name_for_ever(self, database: str) -> None:
        for n in range(3):
            batch = Write(write_id=f"s/{n}", run=new_write().run, stream="s", batch=n)
            sink_of(database).commit(batch, [], Rules())
        offered(database, [])
        run_sql(database, "update tarry.sink_write set committed_at = committed_at - interval '2 days'")
        sink_of(database).sweep()
        assert run_sql(database, "select batch from tarry.sink_write order by batch") == [(2,), (None,)]


class TestGroups:
    def attempt(self, part: int, first: str, last: str) -> Staged:
        return Staged(attempt=part, part=part, rows=1, size=1, queues=frozenset("q"), first=first, last=last)

    def grouped(self, *ranges: str) -> list[list[int]]:
        staged = [self.attempt(part, each[0], each[1]) for part, each in enumerate(ranges)]
        return [[each.part for each in group] for group in disjoint_groups(staged)]

    def test_sorted_input_gives_a_statement_per_task(self) -> None:
        assert self.grouped("gi", "ac", "df") == [[1], [2], [0]]

    def test_what_overlaps_or_touches_stands_together(self) -> None:
        assert self.grouped("ac", "ce", "ef", "gh") == [[0, 1, 2], [3]]
        assert self.grouped("az", "bc", "xy") == [[0, 1, 2]]
        assert self.grouped() == []


def test_a_write_has_a_name_that_can_be_kept(database: str) -> None:
    for name in ("", "x" * 201, "a\x00b"):
        with pytest.raises(InvalidInput, match="a write_id has 1 to 200 characters and no NUL"):
            new_write(name)
    name = "ü" * 200
    assert sink_of(database).begin(new_write(name)).write_id == name
